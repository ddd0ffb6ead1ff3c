"""What earlier versions left in a table, found and mended beside running batches."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from airflow_provider_slshudi.exceptions import TableError
from airflow_provider_slshudi.hudi import mending
from airflow_provider_slshudi.hudi.mending import Findings
from airflow_provider_slshudi.job.orders import Verb
from airflow_provider_slshudi.protocol import metadata
from airflow_provider_slshudi.protocol.maintain import fit
from airflow_provider_slshudi.protocol.rewrite import Rewritten, anew
from airflow_provider_slshudi.protocol.settle import register
from airflow_provider_slshudi.protocol.work import Work


def check(work: Work) -> Findings:
    """Looks for what is wrong; nothing waits for it.

    Raises:
        TimelineUnreadable, LedgerUnavailable, JobFailed: try again later.
        TableError: there is no table.
    """
    with _found(work) as (_, found):
        return found


def mend(work: Work, told: Callable[[Rewritten], None] = lambda _: None) -> Findings:
    """Mends what `check` finds; gives what is left. `told` hears of each clustering.

    Batches wait for seconds, while the index is made anew for as long as reading all footers takes. It may be cut off
    and repeated. Files of a table with `upsert` stay in their buckets: its batches and compactions write them anew.

    Raises:
        LeaseHeld: a table service is at work; and as `check`.
        LedgerAhead, LedgerLost, ForeignWrite, PipelineConflict: a person has to look.
    """
    with _found(work) as (id_, found):
        # First: nothing else gets through a foreign index.
        if found.foreign or found.hiding or found.lacking:
            metadata.rebuild(work, found_by=id_)
        if found.escaped:
            with work.lease() as lease:
                work.change(lease, Verb.UNESCAPE, work.order())
        if found.files and work.pipeline.table.upsert is None:
            while (done := anew(work, id_)).instant is not None:
                told(done)
    return check(work)


@contextmanager
def _found(work: Work) -> Iterator[tuple[str, Findings]]:
    """What is wrong now, and the name under which drivers find it."""
    register(work)
    if not fit(work):
        raise TableError(f"{work.storage.uri} has no table yet: run a batch first", table=work.storage.uri)
    id_ = uuid.uuid4().hex
    work.launcher.run(Verb.LOOK, work.order(transaction=id_), {})
    found = mending.read(work.storage, id_)
    if found is None:
        raise TableError(f"{work.storage.uri}: the job that looks left no findings", table=work.storage.uri)
    try:
        yield id_, found
    finally:
        mending.forget(work.storage, id_)
