"""The protobuf messages of the log service, with every text as bytes.

The SDK's own classes say `string` for keys, topic, source and tags, and parsers then refuse, or leave to chance, what
is not UTF-8; producers do send it. The numbers and labels are those of
https://www.alibabacloud.com/help/en/sls/developer-reference/data-encoding.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]

_PACKAGE = "slshudi.wire"
_KIND = descriptor_pb2.FieldDescriptorProto
_BYTES, _UINT32, _FIXED32 = _KIND.TYPE_BYTES, _KIND.TYPE_UINT32, _KIND.TYPE_FIXED32
_REQUIRED, _OPTIONAL, _REPEATED = _KIND.LABEL_REQUIRED, _KIND.LABEL_OPTIONAL, _KIND.LABEL_REPEATED

_MESSAGES: dict[str, list[tuple[str, int, Any, Any]]] = {
    "Pair": [("Key", 1, _REQUIRED, _BYTES), ("Value", 2, _REQUIRED, _BYTES)],
    "Log": [
        ("Time", 1, _REQUIRED, _UINT32),
        ("Contents", 2, _REPEATED, "Pair"),
        ("Time_ns", 4, _OPTIONAL, _FIXED32),
    ],
    "LogGroup": [
        ("Logs", 1, _REPEATED, "Log"),
        ("Topic", 3, _OPTIONAL, _BYTES),
        ("Source", 4, _OPTIONAL, _BYTES),
        ("LogTags", 6, _REPEATED, "Pair"),
    ],
    "LogGroupList": [("LogGroups", 1, _REPEATED, "LogGroup")],
}


def _build() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name=f"{_PACKAGE}.proto", package=_PACKAGE)
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, label, kind in fields:
            described = message.field.add(name=field, number=number, label=label)
            if isinstance(kind, str):
                described.type, described.type_name = _KIND.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                described.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool.FindFileByName(file.name)


FILE = _build()
"""The file descriptor."""

LOG_GROUP_LIST = FILE.message_types_by_name["LogGroupList"]
"""The descriptor of what a pull answers with."""

LogGroup: Any = message_factory.GetMessageClass(FILE.message_types_by_name["LogGroup"])
"""The message class of what a put carries: one log group, which gets one cursor."""

GROUP_TAG = b"\x0a"
"""What precedes the length of every log group in a LogGroupList: field 1, length-delimited."""


def frame(size: int) -> bytes:
    """What turns a LogGroup of `size` bytes into an element of a LogGroupList when put before it."""
    out = bytearray(GROUP_TAG)
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    return bytes(out)
