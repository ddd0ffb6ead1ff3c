"""The protobuf messages of the log service, with every text as bytes.

The SDK's own classes say `string` for keys, topic, source and tags. Parsers then refuse text that is not UTF-8, or
leave it to chance, and producers do send such text. The numbers and labels are those of
https://www.alibabacloud.com/help/en/sls/developer-reference/data-encoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

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
"""The descriptor of a pull's body."""

LogGroup: Any = message_factory.GetMessageClass(FILE.message_types_by_name["LogGroup"])
"""The message class of a put's body: one log group, which gets one cursor."""

GROUP_TAG = b"\x0a"
"""The byte before the length of every log group in a LogGroupList: field 1, length-delimited."""

_FIXED_SIZES = {1: 8, 5: 4}


def frame(size: int) -> bytes:
    """The prefix that makes a LogGroup of `size` bytes an element of a LogGroupList."""
    out = bytearray(GROUP_TAG)
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    return bytes(out)


def count_groups(body: bytes) -> int:
    """Counts the log groups of a LogGroupList without parsing them. Raises ValueError for a malformed body."""
    offset = groups = 0
    while offset < len(body):
        if body[offset] == GROUP_TAG[0] and offset + 2 < len(body) and body[offset + 2] < 0x80 <= body[offset + 1]:
            # The usual size, for speed.
            offset, groups = offset + 3 + (body[offset + 1] & 0x7F | body[offset + 2] << 7), groups + 1
            continue
        tag, offset = _varint(body, offset)
        kind, groups = tag & 7, groups + (tag == GROUP_TAG[0])
        if kind == 2:
            size, offset = _varint(body, offset)
            offset += size
        elif kind in _FIXED_SIZES:
            offset += _FIXED_SIZES[kind]
        elif kind == 0:
            _, offset = _varint(body, offset)
        else:
            raise ValueError(f"unknown wire type {kind} before byte {offset}")
    if offset != len(body):
        raise ValueError(f"the last log group ends at byte {offset} of {len(body)}")
    return groups


def fields(message: memoryview) -> Iterator[tuple[int, memoryview, memoryview]]:
    """Each field of a message: its tag, the whole field, and the content where that has a length.

    Raises:
        ValueError: the message is malformed.
    """
    offset = 0
    while offset < len(message):
        begin = offset
        tag, offset = _varint(message, offset)
        kind, size = tag & 7, 0
        if kind == 2:
            size, offset = _varint(message, offset)
        elif kind in _FIXED_SIZES:
            size = _FIXED_SIZES[kind]
        elif kind == 0:
            _, offset = _varint(message, offset)
        else:
            raise ValueError(f"unknown wire type {kind} before byte {offset}")
        content, offset = offset, offset + size
        if offset > len(message):
            raise ValueError(f"a field ends at byte {offset} of {len(message)}")
        yield tag, message[begin:offset], message[content:offset]


def _varint(body: bytes | memoryview, at: int) -> tuple[int, int]:
    """The number at `at`, and the position after it."""
    value = shift = 0
    for place in range(at, min(at + 10, len(body))):
        value |= (body[place] & 0x7F) << shift
        if body[place] < 0x80:
            return value, place + 1
        shift += 7
    raise ValueError(f"the number at byte {at} does not end")
