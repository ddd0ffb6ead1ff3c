"""The record of an append in the ledger, and what a plan keeps of its logs' age and of the pipeline's promise."""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any

from airflow_provider_slshudi.config.pipeline import MOST_FILES, Pipeline
from airflow_provider_slshudi.exceptions import CheckFailed, ManifestError, TooManyFiles, TooManyMisfits
from airflow_provider_slshudi.handover import batch_files
from airflow_provider_slshudi.handover.batch_files import CheckResult, Manifest, RangeDone
from airflow_provider_slshudi.ledger.records import Kind, RangeTotals, Transaction
from airflow_provider_slshudi.planning.ranges import Range, merge, subtract
from airflow_provider_slshudi.transaction.context import Work

SINCE = "since"
"""Item of the event PLANNED: the oldest log that was unread then was received at this time (unix seconds) or later."""
PROMISE = "promise"
"""Item of the event PLANNED: the promised seconds, and how fast a shard (None: no limit) and all shards are read."""


def of_plan(pipeline: Pipeline, since: int | None) -> Mapping[str, Any]:
    """Items of the event PLANNED of a tail's batch."""
    items: dict[str, Any] = {} if since is None else {SINCE: since}
    if pipeline.promised is not None:
        source = pipeline.source
        limits = [source.read_bytes_per_second, source.total_bytes_per_second]
        items[PROMISE] = [pipeline.promised.total_seconds(), *limits]
    return items


_log = logging.getLogger(__name__)
GAP_ACCEPTED = "gap accepted"
"""The event of a batch for which a person accepts that logs are lost."""
WHAT_IS_THERE = "reads what is there"
"""The event of a backfill of which no cursors were named: it begins with the oldest log that is there."""


def require_files(work: Work, manifest: Manifest) -> None:
    """Refuses a batch of too many files: it could never be committed, and a recorded batch is not thrown away."""
    partition = work.pipeline.table.partition
    count = len(manifest.stats) + sum(map(len, manifest.routed.values()))
    if count > MOST_FILES:
        raise TooManyFiles(manifest.instant, count, MOST_FILES, partition.column if partition else "")


def totals_of(work: Work, transaction: Transaction, manifest: Manifest) -> list[RangeTotals]:
    """The totals of each planned range, or of what was read of it where the service dropped the rest.

    Raises:
        ManifestError: the manifest is of another transaction, token or instant, a range was not read to its end, or
            files and rows do not add up.
    """
    identity = (transaction.id, transaction.token, transaction.instant)
    if (manifest.transaction, manifest.token, manifest.instant) != identity:
        raise refused(
            work,
            transaction,
            f"it is of {manifest.transaction}, token {manifest.token}, instant {manifest.instant}, not of {identity}",
        )
    written = batch_files.rows_of(manifest.stats) + sum(manifest.rows_by_route.values())
    if manifest.merged is not None:
        if manifest.merged + manifest.dropped != manifest.rows:
            what = f"{manifest.merged} were merged and {manifest.dropped} dropped"
            raise refused(work, transaction, f"{manifest.rows} rows were read, but {what}")
    elif written + manifest.quarantined != manifest.rows + manifest.taken:
        aside = f", and {manifest.quarantined} in the quarantine" if manifest.quarantine is not None else ""
        raise refused(
            work, transaction, f"{manifest.rows + manifest.taken} rows were read, but files hold {written}{aside}"
        )
    for stats in (manifest.stats, *manifest.beside.values()):
        paths = [stat["path"] for stat in stats]
        if len(set(paths)) != len(paths):
            raise refused(work, transaction, "a file is listed twice")
    return _read(work, transaction, manifest)


def _read(work: Work, transaction: Transaction, manifest: Manifest) -> list[RangeTotals]:
    lost = lost_of(manifest)
    if lost and not accepts_losses(work, transaction):
        raise refused(work, transaction, f"it says that {lost[0]} is lost, which the pipeline does not accept")
    planned = [part for item in work.ledger.ranges(transaction.id) if not item.gap for part in subtract([item], lost)]
    parts = _parts(planned, (done for done in manifest.ranges if not done.lost))
    for item in planned:
        read = [Range(done.shard, done.begin, done.end) for done in parts[item]]
        if sum(map(len, read)) != len(item) or merge(read) != merge([item]):
            raise refused(work, transaction, f"range {item} was read as {', '.join(map(str, read)) or 'nothing'}")
    if sum(map(len, parts.values())) + len(lost) != len(manifest.ranges) or not _are_planned(work, transaction, lost):
        raise refused(work, transaction, "it names ranges that were not planned")
    return [_totals(item, parts[item]) for item in planned]


def lost_of(manifest: Manifest) -> list[Range]:
    """What the service dropped after it was planned and before it was read, as gaps."""
    return [Range(done.shard, done.begin, done.end, gap=True) for done in manifest.ranges if done.lost]


def accepts_losses(work: Work, transaction: Transaction) -> bool:
    """Whether a batch goes on where the service dropped some of its log groups after they were planned.

    The pipeline's file says so, or a person accepted the gap for this batch, or the batch reads what is there.
    """
    if work.pipeline.source.on_expired == "skip":
        return True
    return any(event.what in (GAP_ACCEPTED, WHAT_IS_THERE) for event in work.ledger.events(transaction.id))


def reads_what_is_there(work: Work, transaction: Transaction) -> bool:
    """Whether a batch gives back what is lost, instead of recording it as a gap: the pipeline's tail reports it."""
    return any(event.what == WHAT_IS_THERE for event in work.ledger.events(transaction.id))


def _are_planned(work: Work, transaction: Transaction, lost: list[Range]) -> bool:
    planned = [item for item in work.ledger.ranges(transaction.id) if not item.gap]
    return not subtract(lost, planned)


def _parts(planned: list[Range], done: Iterable[RangeDone]) -> dict[Range, list[RangeDone]]:
    parts: dict[Range, list[RangeDone]] = {item: [] for item in planned}
    for part in done:
        # Only the last planned range that begins at or before the part can hold it.
        position = bisect_right(planned, (part.shard, part.begin), key=lambda item: (item.shard, item.begin)) - 1
        if position >= 0 and planned[position].shard == part.shard and part.end <= planned[position].end:
            parts[planned[position]].append(part)
    return parts


def _totals(item: Range, parts: list[RangeDone]) -> RangeTotals:
    first = [part.first_time for part in parts if part.first_time is not None]
    last = [part.last_time for part in parts if part.last_time is not None]
    return RangeTotals(
        item,
        sum(part.rows for part in parts),
        sum(part.bytes for part in parts),
        min(first, default=None),
        max(last, default=None),
        sum(part.filtered for part in parts),
    )


def refused(work: Work, transaction: Transaction, why: str) -> ManifestError:
    """The error for a manifest that may not be recorded."""
    return ManifestError(
        f"{work.storage.uri}: the manifest of transaction {transaction.id} is refused: {why}. "
        "Nothing is committed; settle rolls the instant back and its ranges are planned again",
        table=work.storage.uri,
        transaction=transaction.id,
        instant=transaction.instant,
    )


def require_share(transaction: Transaction, manifest: Manifest, share: float | None) -> None:
    """Raises TooManyMisfits where more than this share of a batch's logs do not fit."""
    if share is None or manifest.unfit <= share * manifest.rows:
        return
    columns = ", ".join(f"{name}: {count}" for name, count in sorted(manifest.misfits.items()))
    # The error goes to the ledger, where values of logs must end.
    _log.warning("of the logs that do not fit: %s", "; ".join(manifest.examples))
    raise TooManyMisfits(
        f"pipeline {transaction.pipeline}: {manifest.unfit} of {manifest.rows} logs of transaction {transaction.id} do "
        f"not fit their columns ({columns}), and max_misfits allows a share of {share:g}. Nothing is committed. "
        "Correct the columns, or allow more; the next run reads all again",
        transaction=transaction.id,
        misfits=manifest.unfit,
        logs=manifest.rows,
        share=share,
    )


def judge(work: Work, transaction: Transaction, manifest: Manifest) -> dict[str, str]:
    """Failed warn-only checks: name to finding.

    Raises:
        CheckFailed: a check that does not only warn failed.
    """
    failed = [item for item in [*manifest.checks, *_freshness(work, transaction, manifest)] if not item.passed]
    warned = {item.name: item.found for item in failed if item.warns}
    for name, finding in warned.items():
        _log.warning("check %s: %s", name, finding)
    refused = {item.name: item.found for item in failed if not item.warns}
    if refused:
        raise CheckFailed(
            f"pipeline {work.pipeline.name}: the batch of transaction {transaction.id} is not committed: "
            + "; ".join(f"check {name}: {finding}" for name, finding in refused.items())
            + ". Its ranges are read again by the next run: mend the source, or the check in the pipeline file",
            pipeline=work.pipeline.name,
            transaction=transaction.id,
            checks=refused,
        )
    return warned


def _freshness(work: Work, transaction: Transaction, manifest: Manifest) -> list[CheckResult]:
    """The results of freshness checks; only a tail's batch has any, since a backfill reads old logs."""
    newest = max((done.last_time for done in manifest.ranges if done.last_time is not None), default=None)
    if newest is None or transaction.kind is not Kind.TAIL:
        return []
    age = round(time.time() - newest)
    return [
        CheckResult.of(check, age <= check.seconds, f"the newest log is {age} s old, asked for is {check.freshness}")
        for check in work.pipeline.checks
        if check.freshness is not None
    ]
