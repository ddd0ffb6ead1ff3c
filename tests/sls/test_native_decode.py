"""The native decoder gives the tables that the other one gives, and refuses what that one refuses."""

from __future__ import annotations

import random
import threading
import time

import pytest
from aliyun.log.log_logs_raw_pb2 import LogGroupListRaw
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_slshudi.exceptions import DecodeError
from airflow_provider_slshudi.sls import decode as entry
from airflow_provider_slshudi.sls import wire
from tests.fuzz.bodies import agreed, list_of_groups, mutated
from tests.needs import NATIVE
from tests.sls.groups import KEYS, alike, groups

pytest.importorskip("slshudi_native", reason=NATIVE)

from airflow_provider_slshudi.sls import native_decode

TEXT = st.sampled_from([b"", b"a", b"b", b"t", b"__tag__:t", b"\xff", b"x" * 130, b"y" * 20_000])
SETTINGS = settings(max_examples=300)


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


@st.composite
def message(draw: st.DrawFn, depth: int) -> bytes:
    """Fields of any order, number and type as far as they end where they say: what nobody sends, but might."""
    parts = []
    for _ in range(draw(st.integers(0, 4))):
        number = draw(st.sampled_from([1, 1, 1, 2, 2, 3, 4, 6, 6, 7, 1000]))
        kind = draw(st.sampled_from(["inner", "inner", "inner", "text", "number", "four", "eight"]))
        if kind == "inner" and depth:
            parts.append(field(number, draw(message(depth - 1))))
        elif kind in ("inner", "text"):
            parts.append(field(number, draw(TEXT) if depth < 2 else b""))
        elif kind == "number":
            parts.append(varint(number << 3) + varint(draw(st.integers(0, 2**64 - 1))))
        else:
            size = 4 if kind == "four" else 8
            parts.append(varint(number << 3 | (5 if size == 4 else 1)) + draw(st.binary(min_size=size, max_size=size)))
    return b"".join(parts)


def test_it_is_the_one_in_use_where_it_is_installed() -> None:
    assert entry.decoder is native_decode


@SETTINGS
@given(listed=groups() | alike(), keys=st.lists(st.sampled_from(KEYS), unique=True), first=st.integers(0, 2**62))
def test_both_give_the_same_table(listed: LogGroupListRaw, keys: list[str], first: int) -> None:
    assert agreed(listed.SerializeToString(), first, keys) is not None


@SETTINGS
@given(body=message(3), keys=st.lists(st.sampled_from(["a", "b", "", "__tag__:t", "__tag__:"]), unique=True))
def test_both_give_the_same_table_whatever_the_fields_are(body: bytes, keys: list[str]) -> None:
    agreed(body, 7, keys)


def test_both_take_or_refuse_mutated_bodies_alike() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    bodies = (mutated(list_of_groups(dice), dice) for _ in range(4000))
    taken = sum(agreed(body, 7, ["id", "message", "__tag__:host"]) is not None for body in bodies)
    assert 400 < taken < 3600


def test_repeated_and_tag_like_keys_are_in_the_map_once_and_in_the_same_order() -> None:
    group = wire.LogGroup(Topic=b"t")
    for name in (b"x", b"y", b"x", b"z"):
        group.LogTags.add(Key=name, Value=b"tag " + name)
    for names in ([b"a", b"b", b"a"], [b"__tag__:y", b"c", b"__tag__:y"], [], [b"__tag__:n", b"a", b"__tag__:z"]):
        log = group.Logs.add(Time=1)
        for number, name in enumerate(names):
            log.Contents.add(Key=name, Value=b"%d" % number)
    body = wire.frame(group.ByteSize()) + group.SerializeToString()
    for keys in ([], ["__tag__:y"], ["a", "__tag__:z", "__tag__:n"]):
        assert agreed(body, 0, keys) is not None
    rest = [[key for key, _ in row] for row in native_decode.decode(body, 0, 0, [])["__rest__"].to_pylist()]
    assert rest[0] == [b"__tag__:y", b"__tag__:x", b"__tag__:z", b"b", b"a"]
    assert rest[1] == [b"__tag__:x", b"__tag__:z", b"c", b"__tag__:y"]


@pytest.mark.parametrize(
    ("group", "why"),
    [
        (b"\x0a\xff", "a number that does not end at byte 3"),
        (b"\x12\x05abc", "a length beyond the end at byte 3"),
        (b"\x0a\x03\x12\x02a", "a length beyond the end at byte 5"),
        (b"\x0a\x03\x25ab", "four bytes that are not there at byte 5"),
        (b"\x0a" + b"\xff" * 9 + b"\x01", "a length beyond the end at byte 3"),
        (b"\x12\xf6" + b"\xff" * 8 + b"\x01", "a length beyond the end at byte 3"),
        (b"\x00\x00", "a field number that there cannot be at byte 2"),
        (b"\x8a\x80\x80\x80\x80\x01\x00", "a field number that there cannot be at byte 2"),
        (b"\x0e\x00", "a type of field that there is not at byte 3"),
        (b"\x73", "a number that does not end at byte 3"),
        (b"\x74", "a type of field that there is not at byte 3"),
        (b"\x73\x7b\x74\x7c", "a type of field that there is not at byte 5"),
        (b"\x73" * 100 + b"\x74" * 100, "too many groups in one another at byte 99"),
    ],
)
def test_an_error_says_what_is_wrong_and_where(group: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=f"shard 4 cursor 9: .* are no LogGroupList: {why}$") as error:
        native_decode.decode(wire.frame(len(group)) + group, 4, 9, ["a"])
    assert (error.value.shard, error.value.cursor) == (4, 9)


def test_a_topic_that_would_fill_memory_is_refused_before_it_does() -> None:
    topic, logs = b"t" * 100_000, field(1, b"") * 100_000
    for number, name in ((3, "topic"), (6, "tag")):
        group = logs + field(number, topic if name == "topic" else field(1, b"n") + field(2, topic))
        began = time.monotonic()
        with pytest.raises(DecodeError, match="more copies of topic, source and tags"):
            native_decode.decode(field(1, group), 0, 0, ["__tag__:n"])
        assert time.monotonic() - began < 5


def test_a_log_with_a_hundred_thousand_keys_takes_no_longer_than_they_are_many() -> None:
    pairs = b"".join(field(2, field(1, b"%d" % (number % 70_000)) + field(2, b"v")) for number in range(100_000))
    tags = b"".join(field(6, field(1, b"%d" % number)) for number in range(50_000))
    like = field(2, field(1, b"__tag__:5") + field(2, b"w"))
    began = time.monotonic()
    table = native_decode.decode(field(1, field(1, pairs + like) + tags), 0, 0, [])
    assert time.monotonic() - began < 5
    assert len(dict(table["__rest__"][0].as_py())) == 120_000


def test_groups_that_nobody_reads_are_skipped() -> None:
    inside = b"\x73\x08\xff\x01\x7b" + field(1, b"no log") + b"\x7c\x74"
    body = field(1, inside + field(1, inside + field(2, field(1, b"k") + inside + field(2, b"v"))))
    table = agreed(body, 0, ["k"])
    assert table is not None
    assert table["k"].to_pylist() == [b"v"]


def test_cursors_end_at_64_bits() -> None:
    assert native_decode.decode(field(1, field(1, b"")), 0, 2**63 - 1, [])["__cursor__"].to_pylist() == [2**63 - 1]
    with pytest.raises(DecodeError, match="a cursor beyond 64 bits at byte 3"):
        native_decode.decode(field(1, b"") * 2, 0, 2**63 - 1, [])


def test_other_threads_run_while_it_decodes() -> None:
    body = field(1, field(1, b"".join(field(2, field(1, b"k") + field(2, b"v")) for _ in range(10))) * 1000) * 300
    ticks, ends = [], threading.Event()

    def tick() -> None:
        while not ends.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        began = time.monotonic()
        native_decode.decode(body, 0, 0, ["k"])
        took = time.monotonic() - began
    finally:
        ends.set()
        thread.join()
    during = [at for at in ticks if began < at < began + took]
    assert len(during) > 2, f"{len(during)} ticks in {took:.3f} s"
