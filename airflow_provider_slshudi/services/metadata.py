"""Hudi's metadata table and its indexes: compared with the files on storage, made anew, or mended."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from airflow_provider_slshudi.exceptions import TableError
from airflow_provider_slshudi.handover.findings import (
    NOTHING,
    Comparison,
    Findings,
    Named,
    forget_findings,
    take_comparison,
    take_findings,
)
from airflow_provider_slshudi.handover.job_order import Verb
from airflow_provider_slshudi.hudi.statistics import Indexes
from airflow_provider_slshudi.ledger.lease import Lease
from airflow_provider_slshudi.services.maintenance import beside_of, require_table, tables_of
from airflow_provider_slshudi.system.points import Point, reach
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.settle import register


def check_metadata(work: Work) -> Comparison:
    """Compares the metadata tables of the table and of those beside it with the files on storage.

    Raises:
        LeaseHeld, TimelineUnreadable, LedgerUnavailable, JobFailed: try again later.
        LedgerAhead, LedgerLost, ForeignWrite, PipelineConflict: a person has to look.
        TableError: there is no table.
    """
    with _decided(work) as lease:
        return _joined(work, [compared_metadata(each, lease) for each in tables_of(work)])


def rebuild_metadata(
    work: Work, only_damaged: bool = False, found_by: Named = NOTHING
) -> tuple[Comparison, Comparison]:
    """Makes the metadata tables of the table and of those beside it anew; raises as `check`.

    With `only_damaged` it leaves undamaged ones alone. Returns the comparisons before and after. `found_by` are
    findings that it mends on the way.

    It deletes files of rolled-back instants first.

    Raises:
        TableError: the new metadata table differs from storage, too; or it is not known whether some files were
            committed, and a new one would show them to every reader.
    """
    with _decided(work) as lease:
        # Those beside first: the table's drivers wait until their times are later than those in it.
        comparisons = [rebuilt_metadata(each, lease, only_damaged, found_by) for each in reversed(tables_of(work))]
    before, after = zip(*reversed(comparisons), strict=True)
    return _joined(work, before), _joined(work, after)


def rebuilt_metadata(
    work: Work, lease: Lease, only_damaged: bool = False, found_by: Named = NOTHING
) -> tuple[Comparison, Comparison]:
    """As `rebuild`, of one table; the caller holds the lease.

    Args:
        work: of the table.
        lease: the pipeline's.
        only_damaged: leave a table that is as it should be.
        found_by: findings about bounds, if there are any.
    """
    before = compared_metadata(work, lease)
    if only_damaged and before.ok:
        return before, before
    _refuse_unknown(work, before)
    reach(Point.METADATA_LEASED)
    order = work.order(transaction=found_by.id, digest=found_by.digest)
    work.change(lease, Verb.REBUILD_METADATA, order, before.files)
    after = compared_metadata(work, lease)
    if not after.ok:
        raise TableError(
            f"{work.storage.uri}: the metadata table was made anew, but still differs from the files on storage "
            f"({', '.join(after.examples) or after.unreadable})",
            table=work.storage.uri,
        )
    return before, after


def _joined(work: Work, found: Sequence[Comparison]) -> Comparison:
    """One comparison of the table's, which comes first, and those of the tables beside."""
    joined, *rest = found
    for called, other in zip(beside_of(work) if rest else (), rest, strict=True):
        joined = joined.joined(called, other)
    return joined


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


def compared_metadata(work: Work, lease: Lease) -> Comparison:
    """How one metadata table differs from the files on storage; the caller holds the lease.

    Raises:
        JobFailed: the driver did not end well.
        TableError: it left no findings.
    """
    id_ = uuid.uuid4().hex
    work.change(lease, Verb.COMPARE_METADATA, work.order(transaction=id_))
    comparison = take_comparison(work.storage, id_)
    if comparison is None:
        raise TableError(f"{work.storage.uri}: the job that compares left no findings", table=work.storage.uri)
    return comparison


def check_indexes(work: Work) -> Findings:
    """Looks for faults; no batch waits for it.

    Raises:
        TimelineUnreadable, LedgerUnavailable, JobFailed: try again later.
        TableError: there is no table.
    """
    with _found(work) as (_, findings):
        return findings


def mend_indexes(work: Work) -> Findings:
    """Mends what `check` finds and returns what is left.

    Batches wait while the index is made anew, for as long as reading all footers takes. Mending may be cut off and
    repeated.

    Raises:
        LeaseHeld: a table service is at work; and as `check`.
        LedgerAhead, LedgerLost, ForeignWrite, PipelineConflict: a person has to look.
    """
    with _found(work) as (named, findings):
        # First: a foreign index stops every other change.
        if findings.foreign or findings.hiding or findings.lacking:
            rebuild_metadata(work, found_by=named)
        if findings.escaped:
            with work.lease() as lease:
                work.change(lease, Verb.UNESCAPE, work.order())
    return check_indexes(work)


@contextmanager
def _found(work: Work) -> Iterator[tuple[Named, Findings]]:
    """The present faults, and how drivers find them."""
    register(work)
    require_table(work)
    id_ = uuid.uuid4().hex
    work.launcher.run(Verb.LOOK, work.order(transaction=id_), {})
    answer = take_findings(work.storage, id_)
    if answer is None:
        raise TableError(f"{work.storage.uri}: the job that looks left no findings", table=work.storage.uri)
    try:
        findings, digest = answer
        yield Named(id_, digest), _with_indexes_beside(work, findings)
    finally:
        forget_findings(work.storage, id_)


def _with_indexes_beside(work: Work, found: Findings) -> Findings:
    """Adds the faults of the indexes of tables beside: batches commit there, too."""
    foreign, all_hiding = list(found.foreign), list(found.hiding)
    for called, beside in beside_of(work).items():
        indexes = Indexes.of(beside.storage)
        hiding = [name for name in indexes.bounded if name not in beside.pipeline.bounded]
        foreign += [f"{called}: {name}" for name in indexes.foreign]
        all_hiding += [f"{called}: {name}" for name in hiding]
    return replace(found, foreign=tuple(foreign), hiding=tuple(all_hiding))
