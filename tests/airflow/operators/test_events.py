"""Events of the table's asset: which committed batches have one, whichever task committed them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import AssetAlias, Context, Variable

from airflow_provider_slshudi.ledger import transactions
from airflow_provider_slshudi.ledger.engine import now
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.reads import AIRFLOW
from airflow_provider_slshudi.ledger.records import Kind, RangeTotals, Transaction
from airflow_provider_slshudi.operators import events
from airflow_provider_slshudi.operators.events import extra_of, settled_alias, table_asset, tell
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.transaction.context import Run, Work
from airflow_provider_slshudi.transaction.decisions import Decision
from airflow_provider_slshudi.transaction.settle import Settled
from tests.airflow.operators.runs import AssetEvents, added, in_run

OVER = {"tail/run-1": "failed", "tail/run-2": "success"}
Committed = Callable[..., Transaction]


@pytest.fixture
def alias(work: Work) -> AssetAlias:
    return settled_alias(work.pipeline)


@pytest.fixture
def recorded(work: Work) -> Committed:
    """Makes transactions of one range each that are PREPARED."""
    made = 0

    def make(run: str = "run-1", airflow: str = "here") -> Transaction:
        nonlocal made
        made += 1
        range_, ledger = Range(0, made, made + 1), work.ledger
        begun = ledger.begin(work.pipeline.name, Kind.TAIL, [range_], "tail", run)
        ledger.note(begun.id, AIRFLOW, airflow)
        ledger.opened(begun.id, begun.token, f"2026112107355812{made}")
        totals, partitions = [RangeTotals(range_, made, 10 * made, 1, 2)], {"event_date=2026-11-21": made}
        return ledger.prepared(begun.id, begun.token, {"files": 1}, totals, partitions=partitions)

    return make


@pytest.fixture
def committed(work: Work, recorded: Committed) -> Committed:
    """Makes such transactions that are COMMITTED."""

    def make(run: str = "run-1", airflow: str = "here") -> Transaction:
        prepared = recorded(run, airflow)
        return work.ledger.committed(prepared.id, prepared.token, f"{prepared.instant}9")

    return make


def told(work: Work, alias: AssetAlias, *settled: Settled, **run: Any) -> list[dict[str, Any]]:
    context: Context = in_run(("tail", "now"), OVER | {"tail/run-3": "running"}, **run)
    tell([alias], context, work, settled)
    return added(context, alias)


def recommitted(transaction: Transaction) -> Settled:
    return Settled(transaction.id, transaction.instant, Decision.RECOMMIT)


def test_every_batch_that_settle_commits_has_an_event_of_its_own(
    work: Work, alias: AssetAlias, committed: Committed, asset_events: AssetEvents
) -> None:
    # Of runs that this Airflow does not know: nobody else will tell them.
    first, second = (committed("unknown", airflow="elsewhere") for _ in range(2))
    assert told(work, alias, recommitted(first), recommitted(second)) == [extra_of(first), extra_of(second)]
    assert extra_of(second) == {
        "transaction": second.id,
        "kind": "tail",
        "instant": "20261121073558122",
        "rows": 2,
        "bytes": 20,
        "place": 2,
        "partitions": {"event_date=2026-11-21": 2},
    }


def test_the_event_is_of_the_tables_asset(
    work: Work, alias: AssetAlias, committed: Committed, asset_events: AssetEvents
) -> None:
    batch = committed()
    context = in_run(("tail", "now"), OVER)
    tell([alias], context, work, [recommitted(batch)])
    (event,) = context["outlet_events"][alias].asset_alias_events
    asset = table_asset(work.pipeline)
    assert (event.dest_asset_key.name, event.dest_asset_key.uri) == (asset.name, asset.uri)


def test_what_was_not_committed_has_no_event(
    work: Work, alias: AssetAlias, recorded: Committed, committed: Committed, asset_events: AssetEvents
) -> None:
    recorded()
    given_up = recorded("run-2")
    work.ledger.aborted(given_up.id, given_up.token, "for a test")
    # Its own task commits it at this moment, and will tell; what settle rolled back is a second instant of it.
    under_way = committed("run-3")
    assert (
        told(
            work,
            alias,
            Settled(given_up.id, given_up.instant, Decision.ROLL_BACK_AND_ABORT),
            Settled(under_way.id, "another", Decision.ROLL_BACK),
        )
        == []
    )


def test_a_batch_whose_task_died_after_its_commit_is_told_by_the_next_look_and_only_once(
    work: Work, alias: AssetAlias, committed: Committed, asset_events: AssetEvents
) -> None:
    told_already, lost = committed("run-2"), committed("run-1")
    asset_events.add(extra_of(told_already))
    assert told(work, alias) == [extra_of(lost)]
    # That look's task died, too: its event did not reach Airflow.
    assert told(work, alias) == [extra_of(lost)]
    asset_events.add(extra_of(lost))
    assert told(work, alias) == []


@pytest.mark.parametrize(("other", "told_again"), [("run-3", False), ("run-2", True)])
def test_of_two_runs_that_look_at_once_the_first_tells_and_the_next_once_that_one_is_over(
    work: Work, alias: AssetAlias, committed: Committed, asset_events: AssetEvents, other: str, told_again: bool
) -> None:
    batch = committed("run-1")
    assert told(replace(work, run=Run("tail", other, "here")), alias) == [extra_of(batch)]
    # Its event is not there yet: run-3 goes on, run-2 has ended without it.
    assert told(work, alias) == ([extra_of(batch)] if told_again else [])


def test_a_run_that_waits_to_claim_while_the_first_one_ends_with_its_event_does_not_tell_it_again(
    work: Work,
    alias: AssetAlias,
    committed: Committed,
    asset_events: AssetEvents,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batch, claim = committed("run-1"), Ledger.reserve_act
    # By the time of run-2's end, which Airflow shows once the claim is through, its event is there.
    assert told(replace(work, run=Run("tail", "run-2", "here")), alias) == [extra_of(batch)]

    def late(*given: Any, **named: Any) -> str:
        asset_events.add(extra_of(batch))
        return claim(*given, **named)

    monkeypatch.setattr(Ledger, "reserve_act", late)
    assert told(work, alias) == []


def test_a_run_that_goes_on_without_its_task_keeps_nobody_from_telling_for_long(
    work: Work,
    alias: AssetAlias,
    committed: Committed,
    asset_events: AssetEvents,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its DAG is paused, or its file is gone: nobody ends the run."""
    batch = committed("run-1")
    assert told(replace(work, run=Run("tail", "run-3", "here")), alias) == [extra_of(batch)]
    assert told(work, alias) == []
    monkeypatch.setattr(events, "_RESERVED", timedelta())
    assert told(work, alias) == [extra_of(batch)]


def test_each_airflow_tells_its_own_asset(
    work: Work, alias: AssetAlias, recorded: Committed, asset_events: AssetEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have a run of one name, since they have one schedule."""
    taken = work.ledger.take_over(recorded("run-1").id)
    batch = work.ledger.committed(taken.id, taken.token, "20260101000000000")
    assert told(replace(work, run=Run("tail", "run-3", "here")), alias) == [extra_of(batch)]
    monkeypatch.setenv("AIRFLOW_VAR_SLSHUDI_AIRFLOW", "there")
    assert told(work, alias, recommitted(batch)) == [extra_of(batch)]


def test_a_moment_without_airflows_variable_makes_no_second_event(
    work: Work, alias: AssetAlias, recorded: Committed, asset_events: AssetEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = work.ledger.take_over(recorded("run-1").id)
    batch = work.ledger.committed(taken.id, taken.token, "20260101000000000")

    def away(*given: Any, **named: Any) -> str:
        raise ConnectionError("the API server is away")

    with monkeypatch.context() as patch:
        patch.setattr(Variable, "get", away)
        assert told(replace(work, run=Run("tail", "run-3", "here")), alias, recommitted(batch)) == [extra_of(batch)]
    assert told(work, alias) == []


def test_a_retry_of_the_task_that_tells_has_the_claim_anew(
    work: Work, alias: AssetAlias, committed: Committed, asset_events: AssetEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = committed("run-1")
    later = replace(work, run=Run("tail", "run-3", "here"))
    for minutes, run, is_told in ((0, later, True), (9, later, True), (11, work, False), (20, work, True)):
        monkeypatch.setattr(transactions, "now", lambda db, past=minutes: now(db) + timedelta(minutes=past))
        assert told(run, alias) == ([extra_of(batch)] if is_told else [])


def test_a_batch_of_an_earlier_try_of_this_run_is_told(
    work: Work, alias: AssetAlias, committed: Committed, asset_events: AssetEvents
) -> None:
    batch = committed("now")
    assert told(work, alias) == [extra_of(batch)]


def test_a_batch_that_was_taken_from_a_run_that_airflow_shows_as_running_is_told(
    work: Work, alias: AssetAlias, recorded: Committed, asset_events: AssetEvents
) -> None:
    """The look that decided it ended without an event: its task had to wait."""
    taken = work.ledger.take_over(recorded("run-3").id)
    batch = work.ledger.committed(taken.id, taken.token, "20260101000000000")
    assert told(work, alias) == [extra_of(batch)]


def test_a_run_that_goes_on_and_another_airflow_tell_their_own(
    work: Work, alias: AssetAlias, committed: Committed, asset_events: AssetEvents
) -> None:
    committed("run-3")
    committed("run-1", airflow="elsewhere")
    committed("run-1", airflow="")
    assert told(work, alias) == []


def test_an_event_behind_many_others_is_found(
    work: Work, alias: AssetAlias, committed: Committed, asset_events: AssetEvents
) -> None:
    batch = committed()
    asset_events.add(extra_of(batch), ago=timedelta(minutes=1))
    for number in range(60):
        asset_events.add({"by": "somebody else", "number": number})
    assert told(work, alias) == []


def test_old_batches_are_not_told_again_once_airflow_has_cleaned_its_events(
    work: Work, alias: AssetAlias, committed: Committed, asset_events: AssetEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed()
    monkeypatch.setattr(events, "_LONGEST", timedelta())
    assert told(work, alias) == []


def test_where_airflow_does_not_answer_what_was_committed_just_now_is_told(
    work: Work, alias: AssetAlias, committed: Committed, asset_events: AssetEvents
) -> None:
    committed("run-2")
    batch = committed("run-1")
    asset_events.answers = False
    assert told(work, alias, recommitted(batch)) == [extra_of(batch)]


def test_without_an_alias_among_its_outlets_a_task_asks_nothing(
    work: Work, committed: Committed, asset_events: AssetEvents
) -> None:
    context = in_run()
    tell([table_asset(work.pipeline)], context, work, [recommitted(committed())])
    assert (asset_events.asked, len(context["outlet_events"])) == (0, 0)
