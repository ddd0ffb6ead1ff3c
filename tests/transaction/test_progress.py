"""How far a backfill is, while its batches and the tail's go on."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import Engine, update

from airflow_provider_slshudi.exceptions import LedgerUnavailable
from airflow_provider_slshudi.ledger import models
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Kind, RangeTotals
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.views import progress, words
from airflow_provider_slshudi.views.progress import Progress

NAME, GROUP = "ad_events", 1_000
ASKED = {0: (0, 100), 1: (0, 100)}
FIRST = "ad_events_backfill/old-logs"


def batch(work: Work, engine: Engine, item: Range, part: str, kind: Kind = Kind.BACKFILL, seconds: int = 10) -> None:
    """A committed batch of log groups of ten rows and a thousand bytes, which took some seconds."""
    dag = f"{NAME}_backfill" if kind is Kind.BACKFILL else f"{NAME}_tail"
    found = work.ledger.begin(NAME, kind, [item], dag, part)
    work.ledger.opened(found.id, 1, f"instant-{item}")
    work.ledger.prepared(found.id, 1, {}, [RangeTotals(item, len(item) * 10, len(item) * GROUP, 1, 2)])
    done = work.ledger.committed(found.id, 1, f"completed-{item}")
    changed = {"changed": done.created + timedelta(seconds=seconds)}
    with engine.begin() as connection:
        table = models.transactions
        connection.execute(update(table).where(table.c.id == done.id).values(changed))


def only(work: Work) -> Progress:
    (found,) = progress.progress(work.ledger, NAME)
    return found


def test_before_any_batch_only_log_groups_are_known(work: Work) -> None:
    assert progress.progress(work.ledger, NAME) == []
    progress.began(work, "ada", "everything", FIRST, ASKED)
    found = only(work)
    assert (found.groups, found.groups_left, found.bytes, found.rows, found.rate, found.seconds) == (
        200,
        200,
        None,
        None,
        None,
        None,
    )
    assert (found.share, found.is_over, found.deed.who, found.deed.reason) == (0, False, "ada", "everything")
    assert words.progress(found) == "0%: 0 of 200 log groups; the time that is left shows after a batch"


def test_batches_of_the_backfill_and_of_the_tail_bring_it_on(work: Work, engine: Engine) -> None:
    batch(work, engine, Range(0, 0, 20), "before", Kind.TAIL)
    progress.began(work, "ada", "everything", FIRST, ASKED)
    assert (only(work).groups, only(work).bytes, only(work).rows) == (180, 180 * GROUP, 1_800), (
        "of two shards, one tells"
    )
    assert only(work).rate == pytest.approx(20 * GROUP / 10), "by the tail's batch, as long as there is no other"

    batch(work, engine, Range(0, 20, 100), "old-logs", seconds=4)
    batch(work, engine, Range(1, 0, 10), "tail-2", Kind.TAIL)
    found = only(work)
    assert (found.groups, found.groups_left, found.rows_left) == (180, 90, 900)
    assert (found.bytes, found.bytes_left, found.share) == (180 * GROUP, 90 * GROUP, 0.5)
    assert found.rate == pytest.approx(80 * GROUP / 4) and found.seconds == pytest.approx(90 / 20)
    assert words.progress(found) == (
        "50%: 90 of 180 log groups, about 90.0 kB of 180 kB raw, 900 of 1,800 rows; 20.0 kB/s, 4.5 s left"
    )

    batch(work, engine, Range(1, 10, 100), "old-logs.part2")
    assert only(work).is_over and only(work).share == 1
    assert words.progress(only(work)) == "all 180 log groups are committed"


def test_a_batch_that_is_only_being_read_is_not_done_and_shows(work: Work) -> None:
    progress.began(work, "ada", "everything", FIRST, ASKED)
    live = work.ledger.begin(NAME, Kind.BACKFILL, [Range(0, 0, 50)], f"{NAME}_backfill", "old-logs.part2")
    assert (only(work).groups_left, only(work).live) == (200, live)
    assert progress.progress(work.ledger, NAME)[0].live == live


def test_a_batch_of_another_backfill_is_not_its_own(work: Work) -> None:
    progress.began(work, "ada", "everything", FIRST, ASKED)
    work.ledger.begin(NAME, Kind.BACKFILL, [Range(0, 0, 50)], f"{NAME}_backfill", "old-logs-again")
    assert only(work).live is None


def test_a_plan_that_is_repeated_and_later_parts_begin_it_once(work: Work) -> None:
    for _ in range(3):
        progress.began(work, "ada", "everything", FIRST, ASKED)
    assert len(work.ledger.audit_entries(NAME, 10)) == 1
    progress.ended(work, FIRST)
    progress.ended(work, FIRST)
    assert [deed.result for deed in work.ledger.audit_entries(NAME, 10)] == ["nothing is left to read"]


@pytest.mark.parametrize("method", ["ask", "answer"])
def test_a_ledger_that_does_not_take_it_fails_nothing(work: Work, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    def away(*_: object) -> None:
        raise LedgerUnavailable("the database does not answer")

    monkeypatch.setattr(Ledger, method, away)
    progress.began(work, "ada", "everything", FIRST, ASKED)
    progress.ended(work, FIRST)
