"""Logs are counted per log group, whatever is in them."""

from __future__ import annotations

import random

import pytest

from airflow_provider_slshudi.exceptions import DecodeError
from airflow_provider_slshudi.sls.answers import Pull
from airflow_provider_slshudi.sls.pieces import count_logs
from airflow_provider_slshudi.sls.wire import LogGroup, frame


def pulled(body: bytes, groups: int) -> Pull:
    return Pull(3, 100, 100 + groups, groups, len(body), body)


def test_each_log_group_tells_its_logs_empty_ones_too() -> None:
    rng = random.Random(seed := random.randrange(2**32))
    print(f"seed {seed}")
    wanted, body = [rng.choice((0, 1, 2, 300)) for _ in range(50)], b""
    for logs in wanted:
        group = LogGroup(Topic=rng.randbytes(5), Source=b"\xff")
        group.LogTags.add(Key=b"t", Value=rng.randbytes(3))
        for _ in range(logs):
            group.Logs.add(Time=rng.randrange(2**32)).Contents.add(Key=b"k", Value=rng.randbytes(rng.randrange(40)))
        content = group.SerializeToString()
        body += frame(len(content)) + content
    assert count_logs(pulled(body, 50)) == wanted
    assert count_logs(pulled(b"", 0)) == []


def test_what_is_no_list_of_log_groups_is_refused() -> None:
    with pytest.raises(DecodeError, match="shard 3 cursor 100: 3 bytes are no LogGroupList"):
        count_logs(pulled(b"\x0a\x7f\x00", 1))
