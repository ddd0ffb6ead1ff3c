"""Two Airflows with one ledger run the same DAG on the same schedule, so their runs have the same ids."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_provider_slshudi.exceptions import BatchUnderWay, IllegalTransition, TailUnderWay
from airflow_provider_slshudi.ledger.records import Kind, Transaction
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.repair.recover import _runs
from airflow_provider_slshudi.transaction.context import Run, Work
from airflow_provider_slshudi.transaction.dangling import Ended, reserve_act
from airflow_provider_slshudi.transaction.settle import dangling_transactions, require_alone, require_turn
from tests.pipelines import customers

RUN = "scheduled__2026-11-28T00:00:00+00:00"


def of(work: Work, airflow: str) -> Work:
    return replace(work, run=Run("tail", RUN, airflow))


def begin(work: Work, at: int = 0) -> Transaction:
    run, ranges = work.run, [Range(0, at, at + 10)]
    return work.ledger.begin(work.pipeline.name, Kind.TAIL, ranges, run.dag_id, run.run_id, {}, run.airflow)


def knows_none(run: Run) -> bool | None:
    return None


@pytest.fixture
def registered(work: Work) -> Work:
    pipeline = work.pipeline
    work.ledger.register(pipeline.name, pipeline.source.identity, pipeline.table.path)
    return work


def test_neither_takes_the_other_s_living_batch_for_its_own(registered: Work) -> None:
    one, other = of(registered, "one"), of(registered, "other")
    theirs = begin(one)
    assert dangling_transactions(other, knows_none) == {}
    mine = begin(other, 10)
    assert list(dangling_transactions(other, knows_none)) == [mine.id]
    assert list(dangling_transactions(one, knows_none)) == [theirs.id]


def test_the_other_s_batch_is_waited_for_as_any_run_s_is(registered: Work) -> None:
    one, other = of(registered, "one"), of(registered, "other")
    theirs = begin(one)
    with pytest.raises(TailUnderWay, match=theirs.id):
        require_turn(other)
    require_turn(one)
    upserting = customers(registered.pipeline.table.path).model_copy(update={"name": registered.pipeline.name})
    with pytest.raises(BatchUnderWay, match=theirs.id):
        require_alone(replace(other, pipeline=upserting))


def test_a_run_has_one_transaction_in_each_airflow(registered: Work) -> None:
    one, other = of(registered, "one"), of(registered, "other")
    begin(one)
    with pytest.raises(IllegalTransition, match="recovery decides"):
        begin(one, 10)
    assert begin(other, 20).run_id == RUN


def test_a_batch_of_a_run_whose_airflow_told_no_name_is_no_other_airflow_s(registered: Work) -> None:
    unknown = begin(of(registered, ""))
    assert dangling_transactions(of(registered, "one"), knows_none) == {}
    assert list(dangling_transactions(of(registered, ""), knows_none)) == [unknown.id]
    assert begin(of(registered, "one"), 10).run_id == RUN
    with pytest.raises(IllegalTransition):
        begin(of(registered, ""), 20)


def test_a_run_whose_airflow_does_not_tell_its_name_takes_no_batch_of_a_named_one(registered: Work) -> None:
    begin(of(registered, "one"))
    assert dangling_transactions(of(registered, ""), knows_none) == {}


def test_a_recovery_names_a_transaction_and_not_the_run_of_the_same_id(registered: Work) -> None:
    theirs, mine = begin(of(registered, "one")), begin(of(registered, "other"), 10)
    ended: Ended = lambda run: run in _runs(registered, [mine.id])  # noqa: E731
    assert list(dangling_transactions(replace(registered, run=Run("recovery", "r")), ended)) == [mine.id]
    assert theirs.id != mine.id


def test_a_claim_is_of_one_airflow_s_run(registered: Work) -> None:
    transaction = begin(of(registered, "one"))
    asked: list[Run] = []

    def ended(run: Run) -> bool | None:
        asked.append(run)
        return None

    def reserves(airflow: str) -> bool:
        return reserve_act(of(registered, airflow), transaction.id, "next", timedelta(minutes=3), ended)

    assert reserves("one") and reserves("one")
    assert not reserves("other")
    assert asked == [Run("tail", RUN, "one")]
