"""What batches did."""

from __future__ import annotations

from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Kind, RangeTotals
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.transaction.decisions import Decision
from airflow_provider_slshudi.views import history
from tests.seen import GROUP, committed, planned, registered


def test_a_batch_tells_its_steps_files_and_rows(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    done = committed(ledger, "clicks", [Range(0, 0, 30)], "run-1")
    (batch,) = history.batches(ledger.history("clicks", 10))
    assert [step.name for step in batch.steps] == ["open", "append and record", "commit"]
    assert all(step.begin <= step.end for step in batch.steps)
    assert (batch.transaction.id, batch.transaction.rows, batch.transaction.bytes) == (done.id, 300, 30 * GROUP)
    assert (batch.files, batch.stored, batch.unfit, batch.decided) == (2, 5_000, 3, 0)


def test_the_time_of_an_append_is_told_apart_from_what_it_waited_for(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    for run, facts in (
        ("run-1", {"seconds": 12.0, "spent": {"waited": 5.0}}),
        ("run-2", {"seconds": 12.0, "spent": {"waited": 0.0}}),
        ("run-3", {}),
    ):
        item = Range(0, int(run[-1]), int(run[-1]) + 1)
        batch = planned(ledger, "clicks", [item], run)
        ledger.opened(batch.id, 1, run)
        ledger.prepared(batch.id, 1, facts, [RangeTotals(item, 1, 1, 1, 2)])
    parts = [view.steps[1].parts for view in history.batches(ledger.history("clicks", 10))]
    rest = "; the rest waiting for tasks to start, and recording"
    limits = ", up to 5.0 s of it waiting for limits of reading"
    assert parts == ["", f"12 s in the append{rest}", f"12 s in the append{limits}{rest}"]


def test_a_batch_that_a_recovery_decided_says_so(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    found = planned(ledger, "clicks", [Range(0, 0, 30)], "run-1")
    decision = {
        "ledger": "PLANNED",
        "timeline": "nothing",
        "instant": None,
        "decision": Decision.ABORT.value,
        "why": "no instant",
    }
    ledger.note(found.id, "decision", {"by": "clicks_tail/run-2", **decision})
    ledger.aborted(found.id, 1, "for a test")
    view = history.transaction(ledger, found.id)
    assert (view.batch.decided, [item.by for item in view.decisions]) == (1, ["clicks_tail/run-2"])
    assert [event.what for event, _ in view.events] == ["PLANNED", "ABORTED"]
    assert view.events[0][1].startswith("dag_id clicks_tail, run_id run-1, ranges 1, requests 4, since ")
    assert (view.batch.files, view.batch.stored) == (None, None)


def test_history_goes_on_where_a_page_ends(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    ids = [committed(ledger, "clicks", [Range(0, at, at + 1)], f"run-{at}").id for at in range(5)]
    first = ledger.history("clicks", 2)
    rest = ledger.history("clicks", 10, before=first[-1].transaction.id)
    assert [item.transaction.id for item in [*first, *rest]] == ids[::-1]


def test_misfits_add_up_over_batches(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    for at in range(3):
        committed(ledger, "clicks", [Range(0, at, at + 1)], f"run-{at}")
    found = history.misfits(ledger.history("clicks", 10), examples=2)
    assert (found.logs, found.rows, dict(found.columns)) == (9, 30, {"price": 9})
    assert found.examples == ["shard 0: price 'x'"] * 2


def test_the_run_of_a_transaction_is_found(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    found = planned(ledger, "clicks", [Range(0, 0, 1)], "scheduled__2026-01-31T00:00:00+00:00")
    assert ledger.of_run("clicks", "clicks_tail", found.run_id, "") == ledger.get(found.id)
    assert ledger.of_run("clicks", "clicks_backfill", found.run_id, "") is None
    # A rebuild of the ledger does not know whose it was.
    assert ledger.of_run("clicks", "clicks_tail", found.run_id, "here") == ledger.get(found.id)


def test_of_two_airflows_runs_with_the_same_ids_each_has_its_own_transaction(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    run = "scheduled__2026-01-31T00:00:00+00:00"
    begun = {
        name: ledger.begin("clicks", Kind.TAIL, [Range(0, at, at + 1)], "clicks_tail", run, {}, name).id
        for at, name in enumerate(("one", "other", ""))
    }
    for name, id_ in begun.items():
        assert ledger.of_run("clicks", "clicks_tail", run, name) == ledger.get(id_)


def test_the_rows_of_each_table_are_told_where_there_are_routes(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    none = committed(ledger, "clicks", [Range(0, 0, 3)], "run-1")
    assert history.transaction(ledger, none.id).tables == {}
    for run, facts, expected in (
        ("run-2", {"routed": {"route-a": 12, "route-b": 0}}, {"main": 8, "route-a": 12, "route-b": 0}),
        (
            "run-3",
            {"routed": {"route-a": 12}, "quarantined": 5},
            {"main": 3, "route-a": 12, "quarantine": 5},
        ),
    ):
        item = Range(0, 10 * int(run[-1]), 10 * int(run[-1]) + 1)
        batch = planned(ledger, "clicks", [item], run)
        ledger.opened(batch.id, 1, run)
        ledger.prepared(batch.id, 1, facts, [RangeTotals(item, 20, 1, 1, 2)])
        assert history.transaction(ledger, batch.id).tables == expected
