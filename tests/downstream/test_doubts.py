"""What is not sure holds partitions open, and what was lost is told of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import GONE, LATE, LedgerShard
from airflow_provider_slshudi.planning.periods import Periods
from airflow_provider_slshudi.planning.watermark import Mark
from airflow_provider_slshudi.sls import service
from airflow_provider_slshudi.transaction import backlog
from tests.downstream.drawn_service import DAY, EPOCH, Clock, DrawnService
from tests.ledgers import quick_engine

NAME, HOUR, LATENESS = "ad_events", 3_600, 60
NINE = int(EPOCH.timestamp()) + 9 * HOUR


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with quick_engine(tmp_path) as engine:
        ledger = Ledger(engine)
        ledger.register(NAME, "sls://ads/events", "file:///lake")
        yield ledger


def look(ledger: Ledger, at: int, *shards: LedgerShard, **marks: Mark) -> None:
    """A look that found the shards' ends; `marks` are more of shards, by `of_` and their ids."""
    ledger.save_shards(NAME, shards)
    ends = {shard.id: [Mark(shard.end or 0, at)] for shard in shards}
    for name, mark in marks.items():
        ends[int(name.removeprefix("of_"))].append(mark)
    ledger.save_look(NAME, at, ends)


def shard(id_: int, first: int, end: int, status: str = "readwrite") -> LedgerShard:
    return LedgerShard(id_, status, "", "", first, end)


def told(ledger: Ledger) -> list[tuple[str, int]]:
    """The hours that become complete, each with its gaps."""
    done = ledger.fold(NAME, Periods("hour"), "event_date=", LATENESS, None, []).completions
    return [(item.value[-2:], item.gaps) for item in done]


def test_a_shard_that_was_found_too_late_holds_all_until_its_loss_is_accepted(ledger: Ledger) -> None:
    look(ledger, NINE - HOUR, shard(0, 10, 10))
    look(ledger, NINE + HOUR + LATENESS, shard(0, 10, 10), shard(1, 50, 50, LATE))
    assert told(ledger) == []
    ledger.lose(NAME, NINE + HOUR, 1)
    ledger.save_shards(NAME, [shard(1, 50, 50)])
    look(ledger, NINE + 2 * HOUR + LATENESS, shard(0, 10, 10), shard(1, 50, 50))
    # What it had received is of nine o'clock at the latest.
    assert told(ledger) == [("08", 1), ("09", 1), ("10", 0)]


def test_a_shard_that_is_gone_counts_until_its_end_is_covered(ledger: Ledger) -> None:
    look(ledger, NINE - HOUR, shard(0, 10, 10), shard(1, 50, 60), of_1=Mark(50, NINE - HOUR))
    ledger.save_shards(NAME, [shard(1, 50, 60, GONE)])
    look(ledger, NINE + HOUR + LATENESS, shard(0, 10, 10))
    assert told(ledger) == []


def test_a_new_shard_had_received_nothing_at_the_list_before_it(ledger: Ledger) -> None:
    look(ledger, NINE - HOUR, shard(0, 10, 10))
    look(ledger, NINE, shard(0, 10, 10))
    look(ledger, NINE + HOUR, shard(0, 10, 10), shard(1, 50, 60))
    assert ledger.progress(NAME)[0] == NINE


def test_a_shard_that_is_gone_and_has_no_mark_was_not_empty(ledger: Ledger) -> None:
    """The lateness was declared while a shard's loss was not accepted yet."""
    ledger.save_shards(NAME, [shard(0, 10, 10), shard(1, 50, 60)])
    for moment in (NINE, NINE + 60):
        look(ledger, moment, shard(0, 10, 10))
        assert ledger.progress(NAME) == (None, moment)


def test_a_list_is_as_old_as_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(0)

    def slowly() -> None:
        clock.true += 30

    drawn = DrawnService(random.Random(1), clock, 1, slowly)
    monkeypatch.setattr(service, "time", clock)
    asked, client = clock.true, drawn.connect()
    client.shards()
    assert client.listed is not None
    assert client.listed <= asked + backlog.SERVICE_CLOCKS_SECONDS


def test_the_age_of_an_expired_log_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(0)
    drawn = DrawnService(random.Random(1), clock, 2, lambda: None)
    monkeypatch.setattr(backlog, "ask_each", lambda ask, shards: {shard: ask(shard) for shard in shards})
    old, new = drawn.shards
    drawn.put(old, 1)
    clock.sleep(2 * DAY)
    drawn.expire()
    for one in (old, new):
        drawn.put(one, 2)
    unread = {old.id: old.base, new.id: new.base}
    assert backlog._still_held(drawn.connect(), unread) == {new.id: new.base}
