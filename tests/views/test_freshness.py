"""How soon a batch had its logs in the table, and what is said where a promise was missed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Kind, RangeTotals, State
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.transaction.record import PROMISE, SINCE
from airflow_provider_slshudi.views import history
from airflow_provider_slshudi.views.findings import Limits, findings
from airflow_provider_slshudi.views.freshness import Freshness, freshness_of, late, why_late
from airflow_provider_slshudi.views.metrics import metrics
from tests.seen import committed, registered

MB = 1_000_000


def batch(ledger: Ledger, since: float | None, promise: list[float | None] | None, kind: Kind = Kind.TAIL) -> None:
    """A committed batch whose oldest log came `since` seconds before now, and was promised so much."""
    more: dict[str, object] = {} if since is None else {SINCE: int(ledger.now().timestamp() - since)}
    more |= {} if promise is None else {PROMISE: promise}
    ranges = [Range(0, 0, 10)]
    found = ledger.begin("clicks", kind, ranges, "clicks_tail", f"run-{kind.value}", more)
    ledger.opened(found.id, 1, found.id.replace("T", "")[:17])
    ledger.prepared(found.id, 1, {"seconds": 1.0}, [RangeTotals(ranges[0], 10, MB, 1, 2)])
    ledger.committed(found.id, 1, f"{ledger.now():%Y%m%d%H%M%S%f}"[:17])


def test_a_batch_is_as_fresh_as_its_oldest_log_at_its_commit(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    batch(ledger, 40, None)
    (found,) = history.batches(ledger.history("clicks", 1))
    assert found.fresh is not None
    assert found.fresh.seconds == pytest.approx(40, abs=5) and found.fresh.waited == pytest.approx(40, abs=5)
    assert (found.fresh.promised, found.fresh.is_late) == (None, False)
    assert "slshudi_freshness" not in " ".join(item.name for item in metrics(ledger))


def test_what_no_service_told_is_not_known(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    batch(ledger, None, [10.0, 10e6, None])
    assert history.batches(ledger.history("clicks", 1))[0].fresh is None
    assert late(ledger, ledger.history("clicks", 5)) == ""


@pytest.mark.parametrize(("promised", "told"), [(60.0, False), (30.0, True)])
def test_a_missed_promise_is_told_by_the_watch_and_measured(ledger: Ledger, promised: float, told: bool) -> None:
    registered(ledger, "clicks")
    batch(ledger, 40, [promised, 10e6, None])
    found = [text for text in findings(ledger, "clicks", Limits()) if "promised" in text]
    assert [text.startswith("clicks: batch 2") and "30 s are promised" in text for text in found] == [True] * told
    figures = {item.name: item.value for item in metrics(ledger)}
    assert figures["freshness_promised_seconds"] == promised
    assert figures["last_batch_freshness_seconds"] == pytest.approx(40, abs=5)


def test_the_newest_batch_of_the_tail_counts_and_no_backfill(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    batch(ledger, 400, [30.0, 10e6, None])
    assert late(ledger, ledger.history("clicks", 5))
    # In time by now.
    committed(ledger, "clicks", [Range(0, 10, 20)], "run-2")
    assert late(ledger, ledger.history("clicks", 5)) == ""


def totals(*sizes: int) -> list[RangeTotals]:
    return [RangeTotals(Range(shard, 0, 10), 10, size, 1, 2) for shard, size in enumerate(sizes)]


def test_where_each_batch_takes_long_the_next_ones_wait_is_not_airflows(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    batch = committed(ledger, "clicks", [Range(0, 0, 10)], "run-1")
    done = replace(batch, manifest={"seconds": 40.0}, bytes=400 * MB)
    found = Freshness(90, 48, 30, 10e6)

    def told(pause: int, busy: int, state: State = State.COMMITTED) -> str:
        ended = done.created - timedelta(seconds=pause)
        before = replace(done, id="before", state=state, created=ended - timedelta(seconds=busy), changed=ended)
        return why_late(done, found, totals(400 * MB), before)

    assert "gives 10.0 MB/s at most. Split it" in told(pause=4, busy=44)
    assert "48 s of that passed before its run began" in told(pause=60, busy=44)
    assert "48 s of that passed while batch before was worked on" in told(pause=1, busy=100)
    assert "Batch before before it failed" in told(pause=1, busy=44, state=State.ABORTED)
    assert "No batch of the tail came shortly before it: 48 s" in why_late(done, found, totals(400 * MB), None)


def test_no_longer_promise_is_advised_than_there_is(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    batch = replace(committed(ledger, "clicks", [Range(0, 0, 10)], "run-1"), manifest={"seconds": 1.0}, bytes=MB)
    before = replace(batch, created=batch.created - timedelta(seconds=15), changed=batch.created - timedelta(seconds=1))
    said = why_late(batch, Freshness(31, 23, 30, 10e6), totals(MB), before)
    assert "whatever its size" in said and "or promise" not in said


def test_an_attempt_that_failed_is_why_the_next_one_was_late(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    batch(ledger, 10, [30.0, 10e6, None])
    failed = ledger.begin("clicks", Kind.TAIL, [Range(0, 10, 20)], "clicks_tail", "run-2", {})
    ledger.aborted(failed.id, 1, "killed")
    since = {SINCE: int(ledger.now().timestamp() - 90), PROMISE: [30.0, 10e6, None]}
    found = ledger.begin("clicks", Kind.TAIL, [Range(0, 10, 20)], "clicks_tail", "run-3", since)
    ledger.opened(found.id, 1, found.id.replace("T", "")[:17])
    ledger.prepared(found.id, 1, {"seconds": 1.0}, [RangeTotals(Range(0, 10, 20), 10, MB, 1, 2)])
    ledger.committed(found.id, 1, f"{ledger.now():%Y%m%d%H%M%S%f}"[:17])
    newest, attempt, *older = ledger.history("clicks", 5)
    # However long this machine took from the one to the other.
    ended = replace(attempt, transaction=replace(attempt.transaction, changed=newest.transaction.created))
    assert f"Batch {failed.id} before it failed" in late(ledger, [newest, ended, *older])


def test_what_is_not_known_of_the_newest_batch_is_not_told_of_an_older_one(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    batch(ledger, 40, [30.0, 10e6, None])
    ranges = [Range(0, 10, 20)]
    found = ledger.begin("clicks", Kind.TAIL, ranges, "clicks_tail", "run-2", {})
    ledger.opened(found.id, 1, found.id.replace("T", "")[:17])
    ledger.prepared(found.id, 1, {}, [RangeTotals(ranges[0], 10, MB, 1, 2)])
    ledger.committed(found.id, 1, f"{ledger.now():%Y%m%d%H%M%S%f}"[:17])
    assert not [item for item in metrics(ledger) if "freshness" in item.name]


def test_a_batch_that_a_later_run_decided_says_so_and_counts_by_the_tables_time(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    batch(ledger, 40, [30.0, 10e6, None])
    (past,) = ledger.history("clicks", 1)
    begun = past.transaction.created
    settled = replace(past.transaction, token=2, changed=begun + timedelta(hours=1))
    assert "Its task died" in late(ledger, [replace(past, transaction=replace(settled, completed=None))])
    told = replace(settled, completed=f"{begun + timedelta(seconds=2):%Y%m%d%H%M%S%f}"[:17])
    found = freshness_of(told, past.events)
    assert found is not None and found.seconds == pytest.approx(42, abs=5)
    of_another_zone = replace(told, completed=f"{begun - timedelta(hours=8):%Y%m%d%H%M%S%f}"[:17])
    found = freshness_of(of_another_zone, past.events)
    assert found is not None and found.seconds > 3_600, "what is not known is never kept"


@pytest.mark.parametrize(
    ("found", "reading", "sizes", "told"),
    [
        (Freshness(50, 40, 30, 10e6), 8, (MB,), "40 s of that passed before its run began"),
        (Freshness(40, 5, 30, 10e6), 2, (MB,), "33 s went to what a batch costs whatever its size"),
        (Freshness(40, 5, 30, 10e6), 2, (MB,), "or promise 1 min 45 s"),
        (Freshness(40, 5, 30, 10e6, 5e6), 30, (60 * MB, 60 * MB), "`source.total_bytes_per_second` allows"),
        (Freshness(40, 5, 30, 10e6), 30, (290 * MB, 10 * MB, 10 * MB), "shard 0 has 93.5 % of the logs"),
        (Freshness(40, 5, 30, 10e6), 30, (290 * MB, 2 * MB), "shard 0 has 99.3 % of the logs"),
        (Freshness(40, 5, 30, 10e6), 30, (290 * MB,), "shard 0 has 100 % of the logs"),
        (Freshness(40, 5, 30, 10e6), 30, (290 * MB, 280 * MB), "its 2 shards give 10.0 MB/s each at most"),
        (Freshness(40, 5, 30, 10e6), 30, (60 * MB, 60 * MB), "at 4.00 MB/s. Give Spark more cores"),
    ],
)
def test_what_would_hold_it_is_said(
    ledger: Ledger, found: Freshness, reading: float, sizes: tuple[int, ...], told: str
) -> None:
    registered(ledger, "clicks")
    batch = committed(ledger, "clicks", [Range(0, 0, 10)], "run-1")
    done = replace(batch, manifest={"seconds": reading}, bytes=sum(sizes))
    late_by = timedelta(seconds=found.waited)
    before = replace(done, created=done.created - late_by - timedelta(seconds=1), changed=done.created - late_by)
    said = why_late(done, found, totals(*sizes), before)
    assert said.startswith(f"its logs were visible after up to {found.seconds:.0f} s, 30 s are promised. ")
    assert told in said
