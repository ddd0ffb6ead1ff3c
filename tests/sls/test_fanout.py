"""One question about many shards."""

from __future__ import annotations

import threading
import time

import pytest

from airflow_provider_slshudi.exceptions import SourceRefused
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.sls.transport import CONNECTIONS, answers, ask_each


def test_every_shard_is_asked_once_and_as_many_at_once_as_there_are_connections() -> None:
    all_at_once, lock = threading.Barrier(CONNECTIONS, timeout=30), threading.Lock()
    asked: list[int] = []
    now, most = 0, 0

    def ask(shard: int) -> int:
        nonlocal now, most
        with lock:
            asked.append(shard)
            now += 1
            most = max(most, now)
        all_at_once.wait()
        with lock:
            now -= 1
        return shard * 10

    shards = range(3 * CONNECTIONS)
    assert ask_each(ask, shards) == {shard: shard * 10 for shard in shards}
    assert sorted(asked) == list(shards)
    assert most == CONNECTIONS


def test_nobody_is_asked_about_nothing() -> None:
    assert ask_each(lambda shard: shard, []) == {}
    assert ask_each(lambda shard: -shard, [7]) == {7: -7}


def test_the_first_error_comes_at_once_and_the_rest_is_not_asked() -> None:
    asked: list[int] = []

    def ask(shard: int) -> int:
        asked.append(shard)
        if shard == 5:
            raise SourceRefused("shard 5 is no more", project="ads", logstore="events", shard=shard)
        time.sleep(0.05)
        return shard

    with pytest.raises(SourceRefused) as caught:
        ask_each(ask, range(1_000))
    assert caught.value.shard == 5
    time.sleep(0.2)
    assert len(asked) < 10 * CONNECTIONS


def test_cursors_of_real_shards_and_an_error_with_the_shard_that_is_not_there(service: LogService) -> None:
    shards = [shard.id for shard in service.shards()]
    assert ask_each(service.end, shards) == {shard: service.end(shard) for shard in shards}
    with pytest.raises(SourceRefused) as caught:
        ask_each(service.end, [*shards, 4_711])
    assert caught.value.shard == 4_711


@pytest.mark.parametrize("mute", [3, 60])
def test_what_never_answers_holds_up_no_others_and_all_is_over_in_time(mute: int) -> None:
    over, never = threading.Event(), [f"never-{number}" for number in range(mute)]

    def ask(name: str) -> str:
        if name in never:
            over.wait(60)
        return name

    began = time.monotonic()
    assert answers(ask, [*never, "a", "b"], 2.0) == {"a": "a", "b": "b"}
    assert time.monotonic() - began < 2.0 * 3, "one time for all"
    over.set()
