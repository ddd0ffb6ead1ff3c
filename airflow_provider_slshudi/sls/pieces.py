"""A pull's log groups in pieces of bounded size, and their counts without parsing logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError as NotParsed

from airflow_provider_slshudi.exceptions import DecodeError
from airflow_provider_slshudi.sls import wire
from airflow_provider_slshudi.sls.answers import Pull
from airflow_provider_slshudi.sls.columns import TAG, Wide, malformed
from airflow_provider_slshudi.sls.decode import decode


def _list_class() -> Any:
    """A LogGroupList (`wire`) with logs as bytes, so that the parser skips their content."""
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="slshudi.counts.proto", package="slshudi.counts")
    group, list_ = file.message_type.add(name="Group"), file.message_type.add(name="List")
    group.field.add(name="Logs", number=1, label=kind.LABEL_REPEATED, type=kind.TYPE_BYTES)
    groups = list_.field.add(name="LogGroups", number=1, label=kind.LABEL_REPEATED, type=kind.TYPE_MESSAGE)
    groups.type_name = ".slshudi.counts.Group"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("slshudi.counts.List"))


_List = _list_class()


def count_logs(pull: Pull) -> list[int]:
    """The number of logs of each log group, in the order of their cursors.

    Raises:
        DecodeError: the body is no LogGroupList.
    """
    try:
        parsed = _List.FromString(pull.body)
    except NotParsed as error:
        raise DecodeError(
            f"shard {pull.shard} cursor {pull.begin}: {len(pull.body)} bytes are no LogGroupList: {error}",
            shard=pull.shard,
            cursor=pull.begin,
        ) from error
    return [len(group.Logs) for group in parsed.LogGroups]


COPIED_BYTES = 32 * 1024 * 1024
"""Copies of topics, sources and tags take at most this much memory at a time; those of a single log may take more."""
_LOG, _LOG_TAG = 1 << 3 | 2, 6 << 3 | 2


def decoded(pull: Pull, keys: Sequence[str]) -> Iterator[tuple[Pull, pa.Table]]:
    """The logs of a pull as `decode` gives them, with the pull; of a wide pull, each piece with its logs.

    Of the pieces of one log group only the last one's `next` is beyond the group, and the first piece of all has the
    pull's `raw_size`: so sums over the pieces are those of the pull.

    Raises:
        DecodeError: the body is malformed.
    """
    try:
        table = decode(pull.body, pull.shard, pull.begin, keys, pull.groups, COPIED_BYTES)
    except Wide:
        for piece in _pieces(pull):
            yield piece, decode_piece(piece, keys)
    else:
        yield pull, table


def decode_piece(piece: Pull, keys: Sequence[str]) -> pa.Table:
    """The logs of a pull that `decoded` gave, with other keys."""
    table = decode(piece.body, piece.shard, piece.begin, keys, piece.groups)
    if not piece.index:
        return table
    place = table.schema.get_field_index("__index__")
    moved = pc.add(table["__index__"], pa.scalar(piece.index, pa.int32()))
    return table.set_column(place, table.schema.field(place), moved)


@dataclass
class _Group:
    """A log group: all of it, the fields that its logs share, how many bytes of these each row has, and its logs."""

    whole: memoryview
    head: bytes
    shared: int
    logs: list[memoryview]

    @property
    def copied(self) -> int:
        return self.shared * len(self.logs)

    def parts(self) -> Iterator[tuple[int, bytes]]:
        """Log groups with some of the logs each, and the place of the first of these."""
        step = max(1, COPIED_BYTES // self.shared)
        for begin in range(0, len(self.logs), step):
            content = b"".join([*self.logs[begin : begin + step], self.head])
            yield begin, wire.frame(len(content)) + content


def _pieces(pull: Pull) -> Iterator[Pull]:
    """Pulls with the logs of `pull` in their order, whose copies take up to `COPIED_BYTES`, or which have one log."""
    try:
        fields = wire.fields(memoryview(pull.body))
        groups = [_group(whole, content) for tag, whole, content in fields if tag == wire.GROUP_TAG[0]]
    except ValueError as error:
        raise malformed(pull.body, str(error), pull.shard, pull.begin) from None
    piece, raw_size = replace(pull, next=pull.begin), pull.raw_size
    while groups:
        ends = np.cumsum([group.copied for group in groups])
        count = int(np.searchsorted(ends, COPIED_BYTES, "right"))
        taken, groups = groups[: max(1, count)], groups[max(1, count) :]
        after = piece.next + len(taken)
        parts = [(0, b"".join(group.whole for group in taken))] if count else list(taken[0].parts())
        for place, (index, body) in enumerate(parts, 1):
            following = after if place == len(parts) else after - 1
            piece = Pull(pull.shard, after - len(taken), following, len(taken), raw_size, body, index)
            raw_size = 0
            yield piece


def _group(whole: memoryview, content: memoryview) -> _Group:
    head: list[memoryview] = []
    logs: list[memoryview] = []
    tags = 0
    for tag, field, _ in wire.fields(content):
        (logs if tag == _LOG else head).append(field)
        tags += tag == _LOG_TAG
    return _Group(whole, b"".join(head), sum(map(len, head)) + tags * len(TAG), logs)
