"""Accepts changes by other clients that took rows out of the table: retention (a dropped partition), and erasure.

What a change took is found by comparing files (`hudi.erasure`), and kept on the table (`handover.erasures`). From then
on the change stops no batch, and a proof knows its rows. Coverage stays, so no batch reads them again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from airflow_provider_slshudi.exceptions import ForeignWrite, TableError
from airflow_provider_slshudi.handover import erasures
from airflow_provider_slshudi.handover.erasures import TABLE, Erasure
from airflow_provider_slshudi.hudi.erasure import Change
from airflow_provider_slshudi.hudi.instant_metadata import PIPELINE_KEY, SERVICES
from airflow_provider_slshudi.hudi.timeline import CHANGES, Timeline
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.settle import register
from airflow_provider_slshudi.transaction.tables import TransactionTables


@dataclass(frozen=True)
class Erased:
    """The changes that were accepted, and those that a rebuild of the ledger took before and that are no erasures."""

    accepted: list[Erasure]
    left: list[str]


def accept_erased(work: Work, reason: str) -> Erased:
    """Accepts the changes by other clients that took rows out of the table or its quarantine.

    May be repeated. A change that a rebuild of the ledger took as it was is looked at, too.

    Raises:
        ForeignWrite: a change that stops the pipeline added or changed rows; nothing was accepted.
        TableError: files of such a change are gone, so nothing tells what it took; nothing was accepted.
        LeaseHeld: files are being rewritten.
    """
    # Not whether ledger and table agree: what puts that right may need to know first what was erased.
    register(work)
    # No service rewrites or deletes files meanwhile.
    with work.service_lease():
        done, other_changes = list[Erasure](), list[str]()
        for table, change, stops in _changes(work):
            try:
                done.append(_look(work, table, change))
            except (ForeignWrite, TableError):
                if stops:
                    raise
                other_changes.append(change.instant.time)
        for item in done:
            erasures.accept(work.storage, item, reason)
    return Erased(done, other_changes)


def _changes(work: Work) -> Iterator[tuple[str, Change, bool]]:
    """Completed changes by other clients that no person accepted as an erasure, and whether they stop the pipeline."""
    mark = work.ledger.accepted(work.pipeline.name)
    tables = TransactionTables.of(work)
    survey = tables.survey()
    keys = [table.key for table, state in zip(tables.beside, survey.beside, strict=True) if state.may_exist]
    for table, timeline in zip((TABLE, *keys), map(Timeline.load, survey.storages), strict=True):
        for instant in timeline.completed(*CHANGES):
            is_ours = PIPELINE_KEY in timeline.extra_metadata(instant) or timeline.operation(instant) in SERVICES
            if not is_ours and not erasures.is_accepted(work.storage, table, instant.time):
                yield table, Change(timeline.storage, timeline, instant), str(instant.completion) > mark


def _look(work: Work, of: str, change: Change) -> Erasure:
    """What the change took; keeps the keys of these rows, but those of a table whose keys are columns."""
    change.require_columns_kept()
    erasure = partial(Erasure, of, change.instant.time, change.operation)
    table = work.pipeline.table
    if table.upsert is None:
        return erasure(erasures.write_keys(work.storage, of, change.instant.time, change.taken()))
    if table.type == "merge_on_read":
        return erasure(change.deleted())
    return erasure(sum(rows for rows, _ in change.taken()))


def told(item: Erasure) -> str:
    """An accepted change as a person reads it."""
    rows = "rows" if item.rows is None else f"{item.rows} rows"
    return f"instant {item.instant} ({item.operation}) took {rows} out of the {item.of}"
