"""Logs whose copies of topic, source and tags take much more memory than the pull that they came in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module

import pyarrow as pa
import pytest
from aliyun.log.log_logs_raw_pb2 import LogGroupListRaw
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_slshudi.exceptions import DecodeError
from airflow_provider_slshudi.sls import decode, pieces, wire
from airflow_provider_slshudi.sls.answers import Pull
from tests.needs import needs_native
from tests.sls.groups import KEYS, alike, groups


@pytest.fixture(scope="module", params=["ptars", pytest.param("native", marks=needs_native)], autouse=True)
def decoder(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "decoder", import_module(f"airflow_provider_slshudi.sls.{request.param}_decode"))
        yield


def pull_of(listed: LogGroupListRaw, first: int = 100) -> Pull:
    body, count = listed.SerializeToString(), len(listed.LogGroups)
    return Pull(3, first, first + count, count, len(body), body)


def wide(tag: int, logs: int) -> LogGroupListRaw:
    listed = LogGroupListRaw()
    group = listed.LogGroups.add(Topic="topic", Source="source")
    group.LogTags.add(Key="note", Value="n" * tag)
    for number in range(logs):
        group.Logs.add(Time=number).Contents.add(Key="n", Value=b"%d" % number)
    return listed


@settings(max_examples=200)
@given(
    listed=groups() | alike(),
    keys=st.lists(st.sampled_from(KEYS), unique=True),
    first=st.integers(0, 2**62),
    most=st.sampled_from([0, 7, 40, 200]),
)
def test_pieces_together_are_the_pull(listed: LogGroupListRaw, keys: list[str], first: int, most: int) -> None:
    pull = pull_of(listed, first)
    whole = decode.decode(pull.body, pull.shard, pull.begin, keys, pull.groups)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "COPIED_BYTES", most)
        parts = list(pieces.decoded(pull, keys))
    tables = [table for _, table in parts]
    assert pa.concat_tables(tables).to_pylist() == whole.to_pylist()
    assert {table.schema for table in tables} == {whole.schema} or not tables
    assert sum(piece.next - piece.begin for piece, _ in parts) == pull.groups
    assert sum(piece.raw_size for piece, _ in parts) == pull.raw_size
    for piece, table in parts:
        again = pieces.decode_piece(piece, keys)
        assert again.to_pylist() == table.to_pylist()


def test_logs_of_a_wide_log_group_come_with_bounded_memory() -> None:
    pull = pull_of(wide(1_000_000, 3_000))
    places = []
    for piece, table in pieces.decoded(pull, ["n", "__tag__:note"]):
        assert table.nbytes < 1.5 * pieces.COPIED_BYTES
        assert pieces.decode_piece(piece, ()).nbytes < 1.5 * pieces.COPIED_BYTES
        places += list(zip(table["__cursor__"].to_pylist(), table["__index__"].to_pylist(), strict=True))
        assert set(table["__tag__:note"].to_pylist()) == {b"n" * 1_000_000}
        assert table["n"].to_pylist() == [b"%d" % index for index in table["__index__"].to_pylist()]
    assert places == [(100, index) for index in range(3_000)]


def test_a_log_whose_tags_are_larger_than_a_piece_comes_alone() -> None:
    rows = [table.num_rows for _, table in pieces.decoded(pull_of(wide(pieces.COPIED_BYTES + 1, 3)), ())]
    assert rows == [1, 1, 1]


def test_a_narrow_pull_is_one_piece() -> None:
    pull = pull_of(wide(100, 1_000))
    ((piece, table),) = pieces.decoded(pull, ())
    assert piece is pull
    assert table.num_rows == 1_000


def test_what_follows_a_wide_log_group_and_is_no_log_group_is_an_error() -> None:
    pull = pull_of(wide(1_000_000, 50))
    for end in (b"\x0a\x05\x0a", b"\x0b", wire.frame(3) + b"\x0a\x05a"):
        with pytest.raises(DecodeError, match="no LogGroupList"):
            list(pieces.decoded(replace(pull, body=pull.body + end, groups=2), ()))
