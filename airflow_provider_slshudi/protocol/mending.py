"""Finds and mends, beside running batches, the faults that other clients left in a table."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from airflow_provider_slshudi.exceptions import TableError
from airflow_provider_slshudi.hudi.statistics import Indexes
from airflow_provider_slshudi.notes.job import Verb
from airflow_provider_slshudi.notes.mending import Findings, Named, forget_findings, take_findings
from airflow_provider_slshudi.protocol import metadata
from airflow_provider_slshudi.protocol.maintain import aside_of, require_table
from airflow_provider_slshudi.protocol.settle import register
from airflow_provider_slshudi.protocol.work import Work


def check(work: Work) -> Findings:
    """Looks for faults; no batch waits for it.

    Raises:
        TimelineUnreadable, LedgerUnavailable, JobFailed: try again later.
        TableError: there is no table.
    """
    with _found(work) as (_, found):
        return found


def mend(work: Work) -> Findings:
    """Mends what `check` finds and returns what is left.

    Batches wait while the index is made anew, for as long as reading all footers takes. Mending may be cut off and
    repeated.

    Raises:
        LeaseHeld: a table service is at work; and as `check`.
        LedgerAhead, LedgerLost, ForeignWrite, PipelineConflict: a person has to look.
    """
    with _found(work) as (named, found):
        # First: a foreign index stops every other change.
        if found.foreign or found.hiding or found.lacking:
            metadata.rebuild(work, found_by=named)
        if found.escaped:
            with work.lease() as lease:
                work.change(lease, Verb.UNESCAPE, work.order())
    return check(work)


@contextmanager
def _found(work: Work) -> Iterator[tuple[Named, Findings]]:
    """The present faults, and how drivers find them."""
    register(work)
    require_table(work)
    id_ = uuid.uuid4().hex
    work.launcher.run(Verb.LOOK, work.order(transaction=id_), {})
    left = take_findings(work.storage, id_)
    if left is None:
        raise TableError(f"{work.storage.uri}: the job that looks left no findings", table=work.storage.uri)
    try:
        found, digest = left
        yield Named(id_, digest), _with_quarantine(work, found)
    finally:
        forget_findings(work.storage, id_)


def _with_quarantine(work: Work, found: Findings) -> Findings:
    """Adds the faults of the quarantine's indexes: a batch with misfits commits there, too."""
    aside = aside_of(work)
    if aside is None:
        return found
    indexes = Indexes.of(aside.storage)
    hiding = [name for name in indexes.bounded if name not in aside.pipeline.bounded]
    return replace(
        found,
        foreign=(*found.foreign, *(f"quarantine: {name}" for name in indexes.foreign)),
        hiding=(*found.hiding, *(f"quarantine: {name}" for name in hiding)),
    )
