"""Log groups that Hypothesis draws."""

from __future__ import annotations

from collections.abc import Sequence

from aliyun.log.log_logs_raw_pb2 import LogGroupListRaw
from hypothesis import strategies as st

NAMES = ["a", "b", "ü", "", "__tag__:t", "__tag__:", "unknown"]
KEYS = [*NAMES, "__time__", "__topic__", "__source__", "__time_ns_part__", "__cursor__", "never there"]
VALUES = st.binary(max_size=12)
TEXTS = st.none() | st.text(max_size=5)


@st.composite
def groups(draw: st.DrawFn) -> LogGroupListRaw:
    listed = LogGroupListRaw()
    for _ in range(draw(st.integers(0, 4))):
        group = listed.LogGroups.add(Topic=draw(TEXTS), Source=draw(TEXTS))
        for name, value in draw(st.lists(st.tuples(st.sampled_from(["t", "", "u"]), st.text(max_size=5)), max_size=3)):
            group.LogTags.add(Key=name, Value=value)
        for _ in range(draw(st.integers(0, 4))):
            ns = draw(st.none() | st.integers(0, 999_999_999))
            log = group.Logs.add(Time=draw(st.integers(0, 2**32 - 1)), Time_ns=ns)
            for key, content in draw(st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=6)):
                log.Contents.add(Key=key, Value=content)
    return listed


@st.composite
def alike(draw: st.DrawFn) -> LogGroupListRaw:
    """Logs that all have the same keys in the same order, or nearly."""
    listed, names = LogGroupListRaw(), draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4))
    for _ in range(draw(st.integers(1, 3))):
        group = listed.LogGroups.add(Topic="t", Source="s")
        for _ in range(draw(st.integers(1, 4))):
            log = group.Logs.add(Time=1)
            for name in draw(st.sampled_from([names, names, names, names[::-1]])):
                log.Contents.add(Key=name, Value=draw(VALUES))
    return listed


def body_of(logs: Sequence[Sequence[tuple[str, str]]]) -> bytes:
    """The logs as a pull brings them, a thousand in a log group."""
    listed = LogGroupListRaw()
    for begin in range(0, len(logs), 1_000):
        group = listed.LogGroups.add(Topic="access", Source="10.0.0.1")
        for pairs in logs[begin : begin + 1_000]:
            log = group.Logs.add(Time=1_767_225_600)
            for key, value in pairs:
                log.Contents.add(Key=key, Value=value.encode())
    body: bytes = listed.SerializeToString()
    return body
