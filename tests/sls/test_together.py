"""Ranges of several shards are read at the same time, those of one shard in their order."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

import pytest

from airflow_provider_slshudi.exceptions import DataExpired, SourceUnavailable
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.sls.pace import Pacer
from airflow_provider_slshudi.sls.reader import Reader, together
from airflow_provider_slshudi.sls.service import PULL_GROUPS, LogService, Pull
from tests.local.sdk import PROJECT, by_ip, make_logstore, put

SHARDS, GROUPS, LENGTH = 3, 20, 5
SECONDS = 5.0


class Watched(LogService):
    """Knows how many pulls were in flight at the same time; those of the shard `held` wait until they are let go."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.lock, self.flying, self.most = threading.Lock(), dict[int, int](), 0
        self.held: int | None = None
        self.let_go = threading.Event()
        self.meeting: threading.Barrier | None = None

    def pull(self, shard: int, begin: int, end: int, count: int = PULL_GROUPS, pacer: Pacer | None = None) -> Pull:
        with self.lock:
            self.flying[shard] = self.flying.get(shard, 0) + 1
            assert self.flying[shard] == 1, "two pulls of one shard"
            self.most = max(self.most, sum(self.flying.values()))
        try:
            if self.meeting is not None:
                self.meeting.wait(SECONDS)
            if shard == self.held and not self.let_go.wait(SECONDS):
                raise SourceUnavailable("held for too long", project="p", logstore="l", shard=shard, cursor=begin)
            return super().pull(shard, begin, end, count, pacer)
        finally:
            with self.lock:
                self.flying[shard] -= 1


@pytest.fixture(scope="module")
def logstore(local_sls: LocalSls) -> str:
    client = by_ip(local_sls.connection())
    name = make_logstore(client, "together", SHARDS)
    for number in range(SHARDS * GROUPS):
        put(client, name, [b"%d" % number])
    return name


@pytest.fixture
def service(local_sls: LocalSls, logstore: str) -> Watched:
    return Watched(local_sls.connection(), PROJECT, logstore)


@pytest.fixture
def ranges(service: Watched) -> list[Range]:
    """Of each shard its log groups in ranges of `LENGTH`, all shards mixed."""
    begins = {shard: service.begin(shard) for shard in range(SHARDS)}
    assert all(service.end(shard) - begin == GROUPS for shard, begin in begins.items())
    return [
        Range(shard, begin + at, begin + at + LENGTH)
        for at in range(0, GROUPS, LENGTH)
        for shard, begin in begins.items()
    ]


def readers(service: LogService) -> dict[int, Reader]:
    return {shard: Reader(service, "clicks") for shard in range(SHARDS)}


def test_every_range_is_read_whole_and_a_shards_in_order(service: Watched, ranges: list[Range]) -> None:
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for item, pull in together(readers(service), ranges, SHARDS):
        assert (item.shard, item.begin) == (pull.shard, pull.begin)
        found[pull.shard].append((pull.begin, pull.next))
    assert found == {
        shard: [(item.begin, item.end) for item in ranges if item.shard == shard] for shard in range(SHARDS)
    }


def test_all_shards_are_asked_at_the_same_time(service: Watched, ranges: list[Range]) -> None:
    # No pull ends before one of each shard is in flight; one after the other, they would never meet.
    service.meeting = threading.Barrier(SHARDS)
    assert len(list(together(readers(service), ranges[:SHARDS], SHARDS))) == SHARDS


def test_no_more_shards_are_asked_than_is_said(service: Watched, ranges: list[Range]) -> None:
    list(together(readers(service), ranges, 2))
    assert service.most == 2


def test_a_slow_shard_holds_no_other_up(service: Watched, ranges: list[Range]) -> None:
    service.held = 1
    came = together(readers(service), ranges, SHARDS)
    others = [next(came)[0].shard for _ in range((SHARDS - 1) * GROUPS // LENGTH)]
    assert set(others) == {0, 2}
    service.let_go.set()
    assert {item.shard for item, _ in came} == {1}


def test_what_one_shard_raises_ends_all_without_waiting_for_the_others(service: Watched, ranges: list[Range]) -> None:
    service.held = 2
    gone = Range(0, 1, 2)
    with pytest.raises(DataExpired, match="shard 0"):
        list(together(readers(service), [gone, *ranges], SHARDS))
    assert service.flying[2] == 1
    service.let_go.set()
