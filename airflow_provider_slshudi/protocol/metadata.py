"""Checks and rebuilds the metadata tables under the pipeline's lease: batches wait, prepared ones stay prepared."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from airflow_provider_slshudi.exceptions import TableError
from airflow_provider_slshudi.ledger.lease import Lease
from airflow_provider_slshudi.notes.job import Verb
from airflow_provider_slshudi.notes.mending import NOTHING, Named
from airflow_provider_slshudi.notes.metadata import Comparison, take_comparison
from airflow_provider_slshudi.points import Point, reach
from airflow_provider_slshudi.protocol.maintain import require_table, tables_of
from airflow_provider_slshudi.protocol.settle import register
from airflow_provider_slshudi.protocol.work import Work


def check(work: Work) -> Comparison:
    """Compares the metadata tables of the table and of its quarantine with the files on storage.

    Raises:
        LeaseHeld, TimelineUnreadable, LedgerUnavailable, JobFailed: try again later.
        LedgerAhead, LedgerLost, ForeignWrite, PipelineConflict: a person has to look.
        TableError: there is no table.
    """
    with _decided(work) as lease:
        return _with_quarantine([compared(each, lease) for each in tables_of(work)])


def rebuild(work: Work, only_damaged: bool = False, found_by: Named = NOTHING) -> tuple[Comparison, Comparison]:
    """Makes the metadata tables of the table and of its quarantine anew; raises as `check`.

    With `only_damaged` it leaves undamaged ones alone. Returns the comparisons before and after. `found_by` are
    findings that it mends on the way.

    It deletes files of rolled-back instants first.

    Raises:
        TableError: the new metadata table differs from storage, too; or it is not known whether some files were
            committed, and a new one would show them to every reader.
    """
    with _decided(work) as lease:
        # The quarantine's first: the table's drivers wait until their times are later than those in it.
        found = [rebuilt(each, lease, only_damaged, found_by) for each in reversed(tables_of(work))]
    before, after = zip(*reversed(found), strict=True)
    return _with_quarantine(before), _with_quarantine(after)


def rebuilt(
    work: Work, lease: Lease, only_damaged: bool = False, found_by: Named = NOTHING
) -> tuple[Comparison, Comparison]:
    """As `rebuild`, of one table; the caller holds the lease.

    Args:
        work: of the table.
        lease: the pipeline's.
        only_damaged: leave a table that is as it should be.
        found_by: findings about bounds, if there are any.
    """
    before = compared(work, lease)
    if only_damaged and before.ok:
        return before, before
    _refuse_unknown(work, before)
    reach(Point.METADATA_LEASED)
    order = work.order(transaction=found_by.id, digest=found_by.digest)
    work.change(lease, Verb.REBUILD_METADATA, order, before.files)
    after = compared(work, lease)
    if not after.ok:
        raise TableError(
            f"{work.storage.uri}: the metadata table was made anew, but still differs from the files on storage "
            f"({', '.join(after.examples) or after.unreadable})",
            table=work.storage.uri,
        )
    return before, after


def _with_quarantine(found: Sequence[Comparison]) -> Comparison:
    first, *rest = found
    return first.with_quarantine(rest[0]) if rest else first


def _refuse_unknown(work: Work, found: Comparison) -> None:
    if found.unknown:
        raise TableError(
            f"{work.storage.uri}: it is not known whether {found.unknown} files were committed: their instants are on "
            f"neither timeline nor archive, and were not rolled back, for example {found.examples[-1]}. A new metadata "
            "table would show their rows to every reader. Move that instant's files out of the table's folder, then "
            "run this again",
            table=work.storage.uri,
        )


@contextmanager
def _decided(work: Work) -> Iterator[Lease]:
    register(work)
    with work.lease() as lease:
        require_table(work)
        yield lease


def compared(work: Work, lease: Lease) -> Comparison:
    """How one metadata table differs from the files on storage; the caller holds the lease.

    Raises:
        JobFailed: the driver did not end well.
        TableError: it left no findings.
    """
    id_ = uuid.uuid4().hex
    work.change(lease, Verb.COMPARE_METADATA, work.order(transaction=id_))
    found = take_comparison(work.storage, id_)
    if found is None:
        raise TableError(f"{work.storage.uri}: the job that compares left no findings", table=work.storage.uri)
    return found
