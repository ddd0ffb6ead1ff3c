"""A transaction's life: every change, its repetition, and what refuses it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from datetime import datetime, timezone

import pytest
from sqlalchemy import Engine

from airflow_provider_slshudi.exceptions import Fenced, IllegalTransition, LedgerError, RangeConflict
from airflow_provider_slshudi.ledger import transactions
from airflow_provider_slshudi.ledger.engine import now
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import LEGAL, LIVE, Kind, RangeTotals, State, Transaction, origins
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.system.processes import this_process

PIPELINE = "clicks"
BASE = 1614750027373205714  # cursors of the service's size
RANGES = [Range(0, BASE, BASE + 10), Range(1, BASE, BASE + 5), Range(2, 7, 9, gap=True)]
TOTALS = [
    RangeTotals(RANGES[0], rows=100, bytes=2_000, first_time=1_700_000_000, last_time=1_700_000_060),
    RangeTotals(RANGES[1], rows=0, bytes=50, first_time=None, last_time=None),
]
MANIFEST = {"stats": [{"path": "a.parquet", "numWrites": 100}], "ratio": 0.1, "who": "é\x00"}
INSTANT = "20261121073558123"
COMPLETED = "20261121073601456"


def begin(ledger: Ledger, ranges: list[Range] = RANGES, run: str = "run-1") -> Transaction:
    return ledger.begin(PIPELINE, Kind.TAIL, ranges, "dag", run)


def bring_to(ledger: Ledger, state: State, ranges: list[Range] = RANGES, run: str = "run-1") -> Transaction:
    """A transaction in `state`, by the shortest way."""
    transaction = begin(ledger, ranges, run)
    if state is State.ABORTED:
        return ledger.aborted(transaction.id, 1, "for a test")
    if state is not State.PLANNED:
        transaction = ledger.opened(transaction.id, 1, INSTANT + run)
    if state in (State.PREPARED, State.COMMITTED):
        transaction = ledger.prepared(transaction.id, 1, MANIFEST, TOTALS)
    if state is State.COMMITTED:
        transaction = ledger.committed(transaction.id, 1, COMPLETED)
    return transaction


CHANGES: dict[State, Callable[[Ledger, str, int], Transaction]] = {
    State.OPEN: lambda ledger, id, token: ledger.opened(id, token, INSTANT),
    State.PREPARED: lambda ledger, id, token: ledger.prepared(id, token, MANIFEST, TOTALS),
    State.COMMITTED: lambda ledger, id, token: ledger.committed(id, token, COMPLETED),
    State.ABORTED: lambda ledger, id, token: ledger.aborted(id, token, "for a test"),
}


def test_the_whole_way(ledger: Ledger) -> None:
    planned = begin(ledger)
    assert (planned.state, planned.token, planned.kind, planned.pipeline) == (State.PLANNED, 1, Kind.TAIL, PIPELINE)
    assert (planned.dag_id, planned.run_id, planned.instant, planned.manifest) == ("dag", "run-1", None, None)
    assert abs((datetime.now(timezone.utc) - planned.created).total_seconds()) < 60
    assert ledger.ranges(planned.id) == RANGES
    assert ledger.reserved(PIPELINE) == RANGES
    assert ledger.totals(planned.id) == []

    opened = ledger.opened(planned.id, 1, INSTANT)
    assert (opened.state, opened.instant) == (State.OPEN, INSTANT)
    assert ledger.by_instant(PIPELINE, INSTANT) == opened

    prepared = ledger.prepared(planned.id, 1, MANIFEST, TOTALS)
    assert (prepared.state, prepared.rows, prepared.bytes) == (State.PREPARED, 100, 2_050)
    assert prepared.manifest == MANIFEST
    assert ledger.totals(planned.id) == TOTALS
    assert ledger.live(PIPELINE) == [prepared]
    assert ledger.latest_committed(PIPELINE) is None

    committed = ledger.committed(planned.id, 1, COMPLETED)
    assert (committed.state, committed.completed, committed.error) == (State.COMMITTED, COMPLETED, None)
    assert committed.created == planned.created <= opened.changed <= prepared.changed <= committed.changed
    assert ledger.get(planned.id) == committed == ledger.latest_committed(PIPELINE)
    assert ledger.coverage(PIPELINE) == [*RANGES[:2], Range(2, 7, 9)]
    assert (ledger.reserved(PIPELINE), ledger.live(PIPELINE)) == ([], [])
    assert [event.what for event in ledger.events(planned.id)] == ["PLANNED", "OPEN", "PREPARED", "COMMITTED"]


@pytest.mark.parametrize("target", CHANGES)
@pytest.mark.parametrize("start", State)
def test_every_change_from_every_state(ledger: Ledger, start: State, target: State) -> None:
    before = bring_to(ledger, start)
    if target in LEGAL[start]:
        assert CHANGES[target](ledger, before.id, 1).state is target
    elif start is target and target is not State.OPEN:  # opened with another instant there
        events = ledger.events(before.id)
        assert CHANGES[target](ledger, before.id, 1) == before
        assert ledger.events(before.id) == events
    else:
        with pytest.raises(IllegalTransition) as caught:
            CHANGES[target](ledger, before.id, 1)
        assert caught.value.found.split()[0] == start.value
        assert caught.value.wanted == " or ".join(state.value for state in origins(target))
        assert caught.value.transaction == before.id
        assert ledger.get(before.id) == before


@pytest.mark.parametrize("target", CHANGES)
def test_an_old_token_is_fenced_even_where_the_change_took_effect(ledger: Ledger, target: State) -> None:
    before = bring_to(ledger, origins(target)[0])
    taken = ledger.take_over(before.id)
    assert taken.token == 2
    with pytest.raises(Fenced) as caught:
        CHANGES[target](ledger, before.id, 1)
    assert (caught.value.token, caught.value.transaction, caught.value.pipeline) == (1, before.id, PIPELINE)
    assert ledger.get(before.id) == taken
    CHANGES[target](ledger, before.id, 2)
    with pytest.raises(Fenced):
        CHANGES[target](ledger, before.id, 1)


@pytest.mark.parametrize("target", CHANGES)
def test_an_unknown_id_is_an_error(ledger: Ledger, target: State) -> None:
    with pytest.raises(LedgerError, match="no transaction nobody"):
        CHANGES[target](ledger, "nobody", 1)


def test_repeating_a_change_with_another_value_is_an_error(ledger: Ledger) -> None:
    id_ = bring_to(ledger, State.OPEN).id
    with pytest.raises(IllegalTransition, match="another instant"):
        ledger.opened(id_, 1, "20261121000000000")
    ledger.prepared(id_, 1, MANIFEST, TOTALS)
    with pytest.raises(IllegalTransition, match="another manifest"):
        ledger.prepared(id_, 1, MANIFEST | {"stats": []}, TOTALS)
    ledger.committed(id_, 1, COMPLETED)
    with pytest.raises(IllegalTransition, match="another completed"):
        ledger.committed(id_, 1, "20261121000000000")


def test_aborting_frees_the_ranges_and_keeps_the_first_reason(ledger: Ledger) -> None:
    first = bring_to(ledger, State.PREPARED)
    assert ledger.aborted(first.id, 1, "rolled back\0by somebody").error == "rolled back\ufffdby somebody"
    assert ledger.aborted(first.id, 1, "again").error == "rolled back\ufffdby somebody"
    assert ledger.reserved(PIPELINE) == ledger.coverage(PIPELINE) == []
    assert begin(ledger).id != first.id


def test_ids_sort_by_time_and_live_ones_come_oldest_first(ledger: Ledger) -> None:
    ids = [begin(ledger, [Range(0, number, number + 1)], f"run-{number}").id for number in range(5)]
    assert [transaction.id for transaction in ledger.live(PIPELINE)] == ids == sorted(ids)
    assert [transaction.id for transaction in ledger.last(PIPELINE, 2)] == [ids[4], ids[3]]
    ledger.aborted(ids[2], 1, "for a test")
    assert [transaction.id for transaction in ledger.last(PIPELINE, 9, State.ABORTED)] == [ids[2]]
    assert len(ledger.last(PIPELINE, 9, State.PLANNED)) == 4


def test_the_latest_committed_is_the_one_that_hudi_completed_last(ledger: Ledger) -> None:
    first = bring_to(ledger, State.OPEN, [Range(0, 0, 5)], "run-1")
    second = bring_to(ledger, State.OPEN, [Range(0, 5, 9)], "run-2")
    for transaction, completed in ((second, "20261121000000001"), (first, "20261121000000002")):
        totals = [RangeTotals(ledger.ranges(transaction.id)[0], 1, 1, 1, 1)]
        ledger.prepared(transaction.id, 1, {}, totals)
        ledger.committed(transaction.id, 1, completed)
    latest = ledger.latest_committed(PIPELINE)
    assert latest is not None
    assert latest.id == first.id


def test_manifests_are_left_out_of_the_list(ledger: Ledger) -> None:
    bring_to(ledger, State.PREPARED)
    assert [transaction.manifest for transaction in ledger.last(PIPELINE, 1)] == [None]


@pytest.mark.parametrize("state", [State.OPEN, State.PREPARED])
def test_ranges_of_live_and_committed_transactions_are_refused(ledger: Ledger, state: State) -> None:
    bring_to(ledger, state)
    for attempt in ("live", "committed"):
        if attempt == "committed":
            id_ = ledger.live(PIPELINE)[0].id
            if state is State.OPEN:
                ledger.prepared(id_, 1, MANIFEST, TOTALS)
            ledger.committed(id_, 1, COMPLETED)
        with pytest.raises(RangeConflict) as caught:
            begin(ledger, [Range(0, BASE + 9, BASE + 20), Range(2, 0, 8), Range(3, 0, 5)], "run-2")
        assert caught.value.ranges == [Range(0, BASE + 9, BASE + 10), Range(2, 7, 8)]
    assert begin(ledger, [Range(0, BASE + 10, BASE + 20), Range(2, 0, 7)], "run-2").state is State.PLANNED


def test_ranges_that_overlap_each_other_are_refused(ledger: Ledger) -> None:
    with pytest.raises(RangeConflict, match="asked for twice"):
        begin(ledger, [Range(0, 0, 100), Range(1, 0, 5), Range(0, 50, 60)])
    assert ledger.live(PIPELINE) == []


def test_pipelines_do_not_reserve_for_each_other(ledger: Ledger) -> None:
    ledger.register("views", "sls://shop/views", "file:///lake/views")
    begin(ledger)
    assert ledger.begin("views", Kind.BACKFILL, RANGES, "dag", "run-1").kind is Kind.BACKFILL


def test_a_run_with_a_live_transaction_begins_no_other(ledger: Ledger) -> None:
    first = begin(ledger)
    with pytest.raises(IllegalTransition, match=first.id):
        begin(ledger, [Range(9, 0, 1)])
    ledger.aborted(first.id, 1, "for a test")
    assert begin(ledger, [Range(9, 0, 1)]).state is State.PLANNED


def test_a_transaction_needs_ranges_and_a_known_pipeline(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="without ranges"):
        begin(ledger, [])
    with pytest.raises(LedgerError, match="no pipeline nobody"):
        ledger.begin("nobody", Kind.TAIL, RANGES, "dag", "run-1")


@pytest.mark.parametrize(
    "totals",
    [
        TOTALS[:1],
        [*TOTALS, TOTALS[0]],
        [TOTALS[0], RangeTotals(Range(1, BASE, BASE + 4), 0, 0, None, None)],
        [*TOTALS, RangeTotals(RANGES[2], 0, 0, None, None)],
        [TOTALS[0], RangeTotals(RANGES[1], -1, 0, None, None)],
    ],
    ids=["missing", "twice", "too short", "gap", "negative"],
)
def test_totals_that_are_not_those_of_the_ranges_are_refused(ledger: Ledger, totals: list[RangeTotals]) -> None:
    before = bring_to(ledger, State.OPEN)
    with pytest.raises(LedgerError):
        ledger.prepared(before.id, 1, MANIFEST, totals)
    assert ledger.get(before.id) == before
    assert ledger.totals(before.id) == []


@pytest.mark.parametrize("manifest", [{"at": datetime.now(timezone.utc)}, {"rows": float("nan")}])
def test_a_manifest_that_is_no_json_is_refused(ledger: Ledger, manifest: dict[str, object]) -> None:
    before = bring_to(ledger, State.OPEN)
    with pytest.raises(LedgerError, match="no JSON"):
        ledger.prepared(before.id, 1, manifest, TOTALS)


def test_a_batch_of_nothing_but_gaps_is_prepared_without_totals(ledger: Ledger) -> None:
    gap = Range(0, 0, 5, gap=True)
    transaction = bring_to(ledger, State.OPEN, [gap])
    ledger.prepared(transaction.id, 1, {}, [])
    ledger.committed(transaction.id, 1, COMPLETED)
    assert ledger.ranges(transaction.id) == [gap]
    assert ledger.coverage(PIPELINE) == [Range(0, 0, 5)]


def test_an_instant_belongs_to_one_transaction(ledger: Ledger) -> None:
    bring_to(ledger, State.OPEN, [Range(0, 0, 1)], "run-1")
    second = begin(ledger, [Range(0, 1, 2)], "run-2")
    with pytest.raises(LedgerError, match="another transaction"):
        ledger.opened(second.id, 1, INSTANT + "run-1")
    assert ledger.get(second.id) == second
    assert ledger.by_instant(PIPELINE, "20000101000000000") is None


@pytest.mark.parametrize("state", State)
def test_heartbeat_and_take_over_are_for_live_transactions(ledger: Ledger, state: State) -> None:
    before = bring_to(ledger, state)
    if state not in LIVE:
        with pytest.raises(IllegalTransition):
            ledger.heartbeat(before.id, 1)
        with pytest.raises(IllegalTransition):
            ledger.take_over(before.id)
        assert ledger.get(before.id) == before
        return
    assert before.process == this_process()
    ledger.release(before.id, 1)
    time.sleep(0.002)
    ledger.heartbeat(before.id, 1)
    after = ledger.get(before.id)
    assert (after.heartbeat > before.heartbeat, after.changed) == (True, before.changed)
    assert after.process == this_process()
    assert ledger.take_over(before.id).token == 2
    with pytest.raises(Fenced):
        ledger.heartbeat(before.id, 1)
    ledger.heartbeat(before.id, 2)
    assert ledger.take_over(before.id).token == 3


def test_a_process_takes_itself_away_and_no_other(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = bring_to(ledger, State.OPEN)
    time.sleep(0.002)
    ledger.release(begun.id, 1)
    rested = ledger.get(begun.id)
    assert rested.process is None and rested.heartbeat > begun.heartbeat
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(transactions, "this_process", lambda: "another")
        ledger.heartbeat(begun.id, 1)
    ledger.release(begun.id, 1)
    assert ledger.get(begun.id).process == "another"
    # Whoever takes it over decides what that process left, and does not stand in its place.
    taken = ledger.take_over(begun.id)
    assert taken.process == "another"
    ledger.heartbeat(begun.id, 2)
    ledger.release(begun.id, 1)
    assert ledger.get(begun.id).process == this_process(), "the former holder's step says nothing of the new one"
    ledger.release("nobody", 1)


def test_heartbeat_and_take_over_of_nothing(ledger: Ledger) -> None:
    for call in (lambda: ledger.heartbeat("nobody", 1), lambda: ledger.take_over("nobody")):
        with pytest.raises(LedgerError, match="nobody"):
            call()
    with pytest.raises(LedgerError, match="nobody"):
        ledger.note("nobody", "looked", "")


def test_events_tell_the_story(ledger: Ledger) -> None:
    transaction = bring_to(ledger, State.OPEN)
    ledger.take_over(transaction.id)
    ledger.note(transaction.id, "recovery", {"decision": "ROLL_BACK_AND_ABORT"})
    ledger.note(transaction.id, "remark", "plain text")
    ledger.aborted(transaction.id, 2, "rolled back")
    events = ledger.events(transaction.id)
    assert [(event.what, event.detail) for event in events[1:]] == [
        ("OPEN", f'{{"instant": "{INSTANT}run-1"}}'),
        ("taken over", '{"token": 2}'),
        ("recovery", '{"decision": "ROLL_BACK_AND_ABORT"}'),
        ("remark", "plain text"),
        ("ABORTED", "rolled back"),
    ]
    assert all(left.at <= right.at for left, right in itertools.pairwise(events))


def test_the_clock_is_utc(engine: Engine) -> None:
    with engine.begin() as connection:
        assert abs((datetime.now(timezone.utc) - now(connection)).total_seconds()) < 60


def test_the_table_of_states_is_the_whole_table() -> None:
    assert set(LEGAL) == set(State)
    assert LIVE == (State.PLANNED, State.OPEN, State.PREPARED)
    assert origins(State.ABORTED) == LIVE
    assert origins(State.PLANNED) == ()


def test_an_aborted_transaction_says_which_step_failed_and_why_it_was_decided(ledger: Ledger) -> None:
    failing = begin(ledger)
    message = "append failed: the disk is full. Nothing of it is committed; make room"
    of_step = (PIPELINE, "tail", "run-1", "append")
    for _ in range(3):
        ledger.note_trouble(*of_step, "JobFailed", message, waits=True, transaction=failing.id)
    assert [event.detail for event in ledger.events(failing.id) if event.what == "failed"] == [
        "append failed: JobFailed: append failed: the disk is full"
    ], "a retry that fails alike is told once"
    taken = ledger.take_over(failing.id, "its run has ended")
    aborted = ledger.aborted(failing.id, taken.token, "timeline NOTHING: nothing was written")
    assert aborted.error == (
        "append failed: JobFailed: append failed: the disk is full; timeline NOTHING: nothing was written"
    )
    ledger.note_trouble(*of_step, "Fenced", "too late", waits=False, transaction=failing.id)
    assert ledger.events(failing.id)[-1].what == "ABORTED", "what comes after the decision is no cause of it"


def test_a_step_that_succeeded_after_all_is_no_reason_of_an_abort(ledger: Ledger) -> None:
    mended = begin(ledger)
    ledger.note_trouble(PIPELINE, "tail", "run-1", "open", "JobFailed", "no Java", waits=True, transaction=mended.id)
    ledger.opened(mended.id, mended.token, "20261121000000001")
    taken = ledger.take_over(mended.id, "its process is gone: worker-1" + "." * 20_000)
    error = str(ledger.aborted(mended.id, taken.token, "rolled back").error)
    assert error.startswith("its process is gone: worker-1") and error.endswith("; rolled back") and len(error) < 2_100


def test_an_aborted_transaction_whose_process_was_killed_says_so(ledger: Ledger) -> None:
    killed = begin(ledger)
    taken = ledger.take_over(killed.id, "its process is gone: worker-1")
    assert str(ledger.aborted(killed.id, taken.token, "rolled back").error).startswith("its process is gone: worker-1;")
