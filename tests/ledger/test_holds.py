"""For how long cleaning and archival wait for a consumer, and what a consumer is told that came too late."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from sqlalchemy import Engine, update

from airflow_provider_slshudi.exceptions import ConsumerBehind
from airflow_provider_slshudi.ledger import models
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Feed, Kind, RangeTotals
from airflow_provider_slshudi.planning.ranges import Range
from tests.ledger.conftest import PIPELINE

DAY = 86_400


def commit(ledger: Ledger, number: int) -> None:
    part = Range(0, number * 10, number * 10 + 10)
    id_ = ledger.begin(PIPELINE, Kind.TAIL, [part], "dag", f"run-{number}").id
    ledger.opened(id_, 1, f"instant-{number}")
    ledger.prepared(id_, 1, {}, [RangeTotals(part, 7, 100, 1, 2)])
    ledger.committed(id_, 1, f"completed-{number}")


def age(engine: Engine, ledger: Ledger, days: dict[int, float]) -> None:
    """Lets commits be so many days old."""
    with engine.begin() as connection:
        for number, count in days.items():
            of_commit = models.transactions.c.instant == f"instant-{number}"
            changed = ledger.now() - timedelta(days=count)
            connection.execute(update(models.transactions).where(of_commit).values(changed=changed))


def test_instants_are_held_from_the_first_unconfirmed_commit_on_until_each_is_too_old(
    engine: Engine, ledger: Ledger
) -> None:
    for number in range(4):
        commit(ledger, number)
    ledger.subscribe(PIPELINE, "slow", Feed.COMMITS, 1, 7 * DAY)
    ledger.subscribe(PIPELINE, "done", Feed.COMMITS, 4, 7 * DAY)
    ledger.subscribe(PIPELINE, "hours", Feed.PARTITIONS, 0, 7 * DAY)
    [hold] = ledger.holds(PIPELINE)
    assert (hold.consumer, hold.place, hold.instant, hold.is_told) == ("slow", 2, "instant-1", False)

    age(engine, ledger, {1: 6, 2: 1})
    [hold] = ledger.holds(PIPELINE)
    assert (hold.instant, hold.is_told) == ("instant-1", True)
    assert "consumer slow has not confirmed the commit of place 2" in str(hold) and "wait for it until" in str(hold)

    age(engine, ledger, {1: 8, 2: 6})
    [hold] = ledger.holds(PIPELINE)
    assert (hold.place, hold.instant) == (2, "instant-2"), "they go on, but keep what is not too old"
    assert "do not wait for it any more" in str(hold)
    age(engine, ledger, {2: 8, 3: 8})
    assert [item.instant for item in ledger.holds(PIPELINE)] == [None]


def test_of_commits_that_a_clean_went_past_a_consumer_hears_from_where_on_it_can_read(ledger: Ledger) -> None:
    for number in range(5):
        commit(ledger, number)
    ledger.subscribe(PIPELINE, "slow", Feed.COMMITS, 1, DAY)
    ledger.save_cleaned(PIPELINE, "instant-3")
    ledger.save_cleaned(PIPELINE, "instant-2")
    with pytest.raises(
        ConsumerBehind, match=r"places 2 to 3 .* `slshudi consumers move clicks slow --to 3 --reason TEXT`"
    ) as behind:
        ledger.take(PIPELINE, "slow", 1, "airflow|dag/run")
    assert behind.value.place == 4
    there = ledger.consumer(PIPELINE, "slow")
    assert there is not None and there.taken is None, "nothing is given, and nothing taken"

    ledger.move(PIPELINE, "slow", 3)
    taken = ledger.take(PIPELINE, "slow", 10, "airflow|dag/run")
    assert taken is not None and taken.taken == 5


def test_what_it_may_read_before_it_goes_on_are_just_the_commits_that_it_is_not_given_any_more(ledger: Ledger) -> None:
    """In the order of places: 2, 0, 3, 1, 4. Of these the consumer has confirmed the first one."""
    for number in (2, 0, 3, 1, 4):
        commit(ledger, number)
    ledger.subscribe(PIPELINE, "slow", Feed.COMMITS, 1, DAY)
    ledger.save_cleaned(PIPELINE, "instant-2")
    condition = "_hoodie_commit_time BETWEEN 'instant-0' AND 'instant-3' AND _hoodie_commit_time NOT IN ('instant-2')"
    with pytest.raises(ConsumerBehind, match=re.escape(f"read them by `{condition}` if")):
        ledger.take(PIPELINE, "slow", 1, "airflow|dag/run")
    ledger.move(PIPELINE, "slow", 4)
    ledger.take(PIPELINE, "slow", 10, "airflow|dag/run")
    assert [item.instant for item in ledger.commits(PIPELINE, 4, 5)] == ["instant-4"]
