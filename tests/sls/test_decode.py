"""The Arrow table of a pull says what the SDK's own flattening says, log by log, whichever decoder makes it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pyarrow as pa
import pytest
from aliyun.log.log_logs_raw_pb2 import LogGroupListRaw
from aliyun.log.pulllog_response import PullLogResponse
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_slshudi.exceptions import DecodeError
from airflow_provider_slshudi.sls import wire
from airflow_provider_slshudi.sls.decode import META, REST, schema
from tests.needs import needs_native
from tests.sls.groups import KEYS, alike, groups

Decode = Callable[..., pa.Table]


@pytest.fixture(scope="module", params=["ptars", pytest.param("native", marks=needs_native)])
def decode(request: pytest.FixtureRequest) -> Decode:
    decoder: Decode = import_module(f"airflow_provider_slshudi.sls.{request.param}_decode").decode
    return decoder


def as_bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def flattened(listed: LogGroupListRaw) -> list[dict[bytes, Any]]:
    """The SDK's own flattening; the nanoseconds are out of the tuple that it puts them into by mistake."""
    logs = PullLogResponse.loggroups_to_flattern_list(listed)
    flat = [{as_bytes(name): as_bytes(value) for name, value in log.items()} for log in logs]
    for log in flat:
        if b"__time_ns_part__" in log:
            (log[b"__time_ns_part__"],) = log[b"__time_ns_part__"]
    return flat


def logs_of(table: pa.Table) -> list[dict[bytes, Any]]:
    """The same shape out of a table: absent where NULL, and nanoseconds only where there are any."""
    logs = []
    for row in table.drop_columns(["__cursor__", "__index__"]).to_pylist():
        rest = row.pop(REST.name)
        log = {name.encode(): value for name, value in row.items() if value is not None}
        if not log.get(b"__time_ns_part__"):
            log.pop(b"__time_ns_part__", None)
        assert len(dict(rest)) == len(rest), "a key twice in the map"
        assert not log.keys() & dict(rest).keys()
        logs.append({**log, **dict(rest)})
    return logs


@settings(max_examples=300)
@given(listed=groups() | alike(), keys=st.lists(st.sampled_from(KEYS), unique=True), first=st.integers(0, 2**62))
def test_every_log_is_what_the_sdk_flattens_it_to(
    decode: Decode, listed: LogGroupListRaw, keys: list[str], first: int
) -> None:
    body = listed.SerializeToString()
    assert wire.count_groups(body) == len(listed.LogGroups)
    table = decode(body, 3, first, keys, len(listed.LogGroups))
    table.validate(full=True)
    assert table.schema == schema(keys)
    assert logs_of(table) == flattened(listed)
    places = [
        (first + number, place) for number, group in enumerate(listed.LogGroups) for place in range(len(group.Logs))
    ]
    assert list(zip(table["__cursor__"].to_pylist(), table["__index__"].to_pylist(), strict=True)) == places


@pytest.mark.parametrize("odd", [["b", "a"], ["a", "c"], ["a", "a"], ["aa", "b"], ["a"]])
def test_one_log_with_other_keys_among_many_alike_is_not_taken_for_one_of_them(decode: Decode, odd: list[str]) -> None:
    listed = LogGroupListRaw()
    group = listed.LogGroups.add(Topic="t", Source="s")
    for number in range(20):
        log = group.Logs.add(Time=1)
        for name in odd if number == 13 else ["a", "b"]:
            log.Contents.add(Key=name, Value=b"%s %d" % (name.encode(), number))
    assert logs_of(decode(listed.SerializeToString(), 0, 0, ["a", "b"])) == flattened(listed)


def test_columns_come_in_the_order_of_the_keys_with_the_rest_last(decode: Decode) -> None:
    assert schema(["b", "__time__", "a"]).names == [*META.names, "b", "a", "__rest__"]
    assert decode(b"", 0, 5, ["b"]).schema == schema(["b"])
    assert decode(b"", 0, 5, ["b"]).num_rows == 0


@pytest.mark.parametrize("keys", [["a", "a"], ["__rest__"]])
def test_keys_that_cannot_all_be_columns_are_refused(decode: Decode, keys: list[str]) -> None:
    with pytest.raises(ValueError, match="name each key once"):
        decode(b"", 0, 0, keys)


def test_text_that_is_not_utf8_survives_wherever_it_stands(decode: Decode) -> None:
    group = wire.LogGroup(Topic=b"\xff1", Source=b"\xff2")
    group.LogTags.add(Key=b"\xff3", Value=b"\xff4")
    group.Logs.add(Time=1).Contents.add(Key=b"\xff5", Value=b"\xff6")
    body = group.SerializeToString()
    (row,) = decode(wire.frame(len(body)) + body, 0, 0, []).to_pylist()
    assert (row["__topic__"], row["__source__"]) == (b"\xff1", b"\xff2")
    assert row["__rest__"] == [(b"__tag__:\xff3", b"\xff4"), (b"\xff5", b"\xff6")]


def test_a_content_named_like_a_column_of_every_log_stays_in_the_rest(decode: Decode) -> None:
    listed = LogGroupListRaw()
    log = listed.LogGroups.add(Topic="topic").Logs.add(Time=7)
    for name in ("__time__", "__cursor__", "__rest__"):
        log.Contents.add(Key=name, Value=b"mine")
    (row,) = decode(listed.SerializeToString(), 0, 100, ["__time__", "__cursor__"]).to_pylist()
    assert (row["__time__"], row["__cursor__"], row["__topic__"]) == (7, 100, b"topic")
    assert dict(row["__rest__"]) == {b"__time__": b"mine", b"__cursor__": b"mine", b"__rest__": b"mine"}


@pytest.fixture(scope="module")
def body() -> bytes:
    listed = LogGroupListRaw()
    for number in range(3):
        listed.LogGroups.add(Topic="t").Logs.add(Time=number).Contents.add(Key="k", Value=b"v" * 200)
    made: bytes = listed.SerializeToString()
    return made


def test_a_cut_body_is_an_error_that_says_where(decode: Decode, body: bytes) -> None:
    for length in range(1, len(body)):
        with pytest.raises(DecodeError, match="shard 4 cursor 77") as error:
            decode(body[:length], 4, 77, ["k"], groups=3)
        assert (error.value.shard, error.value.cursor) == (4, 77)


@pytest.mark.parametrize("junk", [b"\xff" * 20, b"\x0a\xff", b"not protobuf at all", b"\x0a\x03\x0a\x05a"])
def test_bytes_that_are_no_pull_are_an_error(decode: Decode, junk: bytes) -> None:
    with pytest.raises(DecodeError, match="no LogGroupList"):
        decode(junk, 0, 0, ["k"])
