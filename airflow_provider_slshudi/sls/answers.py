"""Reads the service's answers, and believes none that contradicts itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Literal

import pyarrow as pa

from airflow_provider_slshudi.exceptions import CursorError
from airflow_provider_slshudi.sls import cursors, wire
from airflow_provider_slshudi.sls.transport import LARGEST, Answer

_LZ4, _ZSTD = pa.Codec("lz4_raw"), pa.Codec("zstd")
_LZ4_RATIO = 255  # the most bytes that one byte of an LZ4 block can hold


class Doubt(Exception):
    """Why an answer is not believed, as the end of a sentence."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard as the service lists it: its hash keys `[hash_begin, hash_end)` and when it was made, in unix seconds."""

    id: int
    status: Literal["readwrite", "readonly"]
    hash_begin: str
    hash_end: str
    created: int


@dataclass(frozen=True, slots=True)
class Pull:
    """One answer: `groups` log groups of `shard` from cursor `begin`; reading goes on at cursor `next`.

    `body` is the protobuf LogGroupList, decompressed, and `raw_size` its announced size in bytes. A piece of an answer
    (see `sls.pieces`) has the same form; `index` is the place of its first log within the log group. One that is `lost`
    is no answer: the service dropped these log groups before they were read.
    """

    shard: int
    begin: int
    next: int
    groups: int
    raw_size: int
    body: bytes = field(repr=False)
    index: int = 0
    lost: bool = False


def pull(answer: Answer, shard: int, begin: int, end: int) -> Pull:
    """Reads the answer to a pull of `[begin, end)`. Raises Doubt.

    A `next` beyond `begin + groups` is no contradiction: it shows expired data, and the reader decides about that.

    Args:
        answer: the service's, with headers and body.
        shard: its id.
        begin: the first cursor that was asked for.
        end: the cursor after the last one.
    """
    groups, size = _number(answer.headers, "x-log-count"), _number(answer.headers, "x-log-bodyrawsize")
    following = _cursor(_header(answer.headers, "x-log-cursor"))
    if following < begin + groups:
        raise Doubt(f"{groups} log groups but the next cursor {following}")
    if following > end:
        raise Doubt(f"the next cursor {following}, beyond the end {end} that was asked for")
    body = _decompressed(answer.body, answer.headers, size)
    try:
        body_groups = wire.count_groups(body)
    except ValueError as error:
        raise Doubt(f"{len(body)} bytes that are no LogGroupList: {error}") from None
    if body_groups != groups:
        raise Doubt(f"{body_groups} log groups where x-log-count says {groups}")
    return Pull(shard, begin, following, groups, size, body)


def shards(answer: Answer) -> list[Shard]:
    """The shards that the answer lists, by id. Raises Doubt."""
    listed = _json(answer)
    try:
        return sorted(map(_shard, listed), key=lambda shard: shard.id)
    except (LookupError, TypeError, ValueError) as error:
        raise Doubt(f"a list of shards that cannot be read: {type(error).__name__}: {error}") from None


def logstores(answer: Answer) -> list[str]:
    """The names of the logstores that the answer lists, sorted. Raises Doubt."""
    document = _json(answer)
    names = document.get("logstores") if isinstance(document, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Doubt("a list of logstores that cannot be read")
    return sorted(names)


def retention(answer: Answer) -> tuple[int, int] | None:
    """How many seconds the logstore keeps a log, and when it was changed; None where the answer does not say."""
    document = _json(answer)
    days, changed = (
        (document.get("ttl"), document.get("lastModifyTime")) if isinstance(document, dict) else (None, None)
    )
    if type(days) is not int or days < 1 or type(changed) is not int:
        return None
    return days * 86_400, changed


def cursor(answer: Answer) -> int:
    """The cursor that the answer names. Raises Doubt."""
    document = _json(answer)
    if not isinstance(document, dict) or not isinstance(document.get("cursor"), str):
        raise Doubt("JSON without a cursor")
    return _cursor(document["cursor"])


def cursor_time(answer: Answer) -> int:
    """The receive time in the answer, in unix seconds. Raises Doubt."""
    document = _json(answer)
    if (
        not isinstance(document, dict)
        or not isinstance(document.get("cursor_time"), int)
        or document["cursor_time"] < 0
    ):
        raise Doubt("JSON without the time of a cursor")
    return int(document["cursor_time"])


def date(answer: Answer) -> float | None:
    """When the service sent the answer, in unix seconds by its own clock; None where the answer does not say."""
    try:
        return parsedate_to_datetime(answer.headers.get("date", "")).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


def error(answer: Answer) -> tuple[str, str]:
    """Error code and message of a failed response; for a gateway's own page the code is its status."""
    try:
        document = json.loads(answer.body)
        return _one_line(document["errorCode"]), _one_line(document.get("errorMessage", ""))
    except (ValueError, LookupError, TypeError, AttributeError):
        return f"HTTP {answer.status}", "an answer that is not the log service's"


def _one_line(text: object) -> str:
    """A text of the service without line breaks and control characters: a line of its own could pass for a driver's."""
    characters = (char if char.isprintable() else " " for char in str(text))
    return " ".join("".join(characters).split())


def _decompressed(body: bytearray, headers: Mapping[str, str], size: int) -> bytes:
    kind = headers.get("x-log-compresstype", "").lower()
    if size > LARGEST:
        raise Doubt(f"x-log-bodyrawsize {size}, more than {LARGEST}")
    if kind not in ("", "lz4", "zstd"):
        raise Doubt(f"the compression {kind!r}, which was not asked for")
    if kind == "" or not body:
        raw = bytes(body)
    elif kind == "lz4":
        raw = _from_lz4(body, size)
    else:
        raw = _attempt(_ZSTD, body, size)
    if len(raw) != size:
        raise Doubt(f"{len(raw)} bytes where x-log-bodyrawsize says {size}")
    return raw


def _from_lz4(body: bytearray, size: int) -> bytes:
    if not 0 < size <= len(body) * _LZ4_RATIO:
        raise Doubt(f"{len(body)} compressed bytes where x-log-bodyrawsize says {size}")
    raw = _attempt(_LZ4, body, size)
    # A block does not tell its size: one that holds less leaves stray memory at the output's end. One that does not fit
    # into a byte less holds no less. Both calls together cost less than the `lz4` package.
    try:
        _LZ4.decompress(body, size - 1)
    except OSError:
        return raw
    raise Doubt(f"fewer bytes than the {size} that x-log-bodyrawsize says")


def _attempt(codec: Any, body: bytearray, size: int) -> bytes:
    try:
        return bytes(codec.decompress(body, size, asbytes=True))
    except (OSError, ValueError) as failed:
        raise Doubt(f"{len(body)} bytes that do not decompress to {size}: {failed}") from None


def _header(headers: Mapping[str, str], name: str) -> str:
    if name not in headers:
        raise Doubt(f"no header {name}")
    return headers[name]


def _number(headers: Mapping[str, str], name: str) -> int:
    text = _header(headers, name)
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise Doubt(f"{name} {text[:40]!r}, which is no number")
    return int(text)


def _cursor(text: str) -> int:
    try:
        return cursors.parse(text)
    except CursorError as wrong:
        raise Doubt(str(wrong)) from None


def _json(answer: Answer) -> Any:
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError) as wrong:
        raise Doubt(f"what is no JSON: {wrong}") from None


def _shard(listed: dict[str, Any]) -> Shard:
    if listed["status"] not in ("readwrite", "readonly"):
        raise ValueError(f"shard {listed['shardID']} has the unknown status {listed['status']!r}")
    return Shard(
        int(listed["shardID"]),
        listed["status"],
        str(listed["inclusiveBeginKey"]),
        str(listed["exclusiveEndKey"]),
        int(listed["createTime"]),
    )
