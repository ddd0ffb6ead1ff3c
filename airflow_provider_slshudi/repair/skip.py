"""An operator skips log groups that cannot be read: a batch records them as a gap, and files keep their bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from airflow_provider_slshudi.exceptions import ConfigError, DecodeError, SourceError, SourceRefused, SourceThrottled
from airflow_provider_slshudi.handover import ROOT
from airflow_provider_slshudi.handover.names import PARAMS_SOURCE
from airflow_provider_slshudi.planning.ranges import Range, merge
from airflow_provider_slshudi.sls.answers import Pull
from airflow_provider_slshudi.sls.pieces import decoded
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.transaction import plan, steps
from airflow_provider_slshudi.transaction.context import Work

SKIPPED = "range skipped"
"""Name of the ledger event that says who skipped cursors, why, and where their bytes are."""
_OF_THE_CURSOR = ("InvalidCursor", "ParameterInvalid")
"""Codes by which the service refuses a cursor, and not the key."""
MOST_LOG_GROUPS = 5_000
"""Each log group is asked for by itself, so a range has no more."""


@dataclass(frozen=True)
class Skipped:
    """The cursors that a transaction records as gaps, and the files that have their log groups.

    Attributes:
        transaction: its id.
        gaps: the cursors.
        files: paths within the table; each file is the LogGroupList of one log group.
        lost: per log group that the service does not give, the reason.
    """

    transaction: str
    gaps: list[Range]
    files: list[str]
    lost: dict[str, str]


def parsed(text: str) -> Range:
    """The range that a text `SHARD:BEGIN-END` names, its end excluded.

    Raises:
        ConfigError: the text has another form, or the range is empty, or too long.
    """
    match = re.fullmatch(r"\s*([0-9]{1,9}):([0-9]{1,19})-([0-9]{1,19})\s*", text)
    shard, begin, end = (int(part) for part in match.groups()) if match else (0, 0, 0)
    if not 0 < end - begin <= MOST_LOG_GROUPS or end >= 2**63:
        why = f"expected SHARD:BEGIN-END, the end excluded, with at most {MOST_LOG_GROUPS:,} log groups"
        raise ConfigError(f"cursors: {text!r}: {why}", source=PARAMS_SOURCE, field="cursors", value=text)
    return Range(shard, begin, end)


def unreadable(work: Work, wanted: Range) -> dict[Range, str]:
    """The unread log groups of `wanted` that cannot be read, each with the reason. Raises as `skip`."""
    reasons: dict[Range, str] = {}
    for item, pull in _each(work, plan.left_of(work, plan.request_of(wanted))):
        try:
            if isinstance(pull, SourceError):
                raise pull
            for _ in decoded(pull, [column.source_key for column in work.pipeline.columns][:1]):
                pass
        except (SourceError, DecodeError) as error:
            reasons[item] = str(error)
    return reasons


def skip(work: Work, wanted: Range, reason: str) -> Skipped:
    """Commits a batch that records the unread cursors of `wanted` as gaps; later batches go on behind them.

    The log groups are kept in files below `.hoodie/slshudi/skipped`, as the service gives them.

    Raises:
        SourceError: the service does not answer, or refuses the key: that is no log group's fault. Nothing is
            skipped; the next settle gives the cursors back.
        ConfigError: the service does not hold these cursors, or all of them were read.
        BatchUnderWay, LedgerAhead, LedgerLost, ForeignWrite, PipelineConflict: see `plan.backfill`.
    """
    begun = plan.skip(work, wanted)
    # Its files need the table's folder, which this makes.
    steps.open_instant(work, begun.id, begun.token)
    with work.heartbeat(begun.id, begun.token):
        done = _keep(work, begun.id)
        kept_files = {"files": len(done.files), "in": f"{ROOT}/skipped/{begun.id}"}
        detail = {"why": reason, "gaps": [str(item) for item in done.gaps], "lost": done.lost, **kept_files}
        work.ledger.note(begun.id, SKIPPED, detail)
    steps.append(work, begun.id, begun.token)
    steps.record(work, begun.id, begun.token)
    steps.commit(work, begun.id, begun.token)
    return done


def _keep(work: Work, id_: str) -> Skipped:
    gaps = work.ledger.ranges(id_)
    files: list[str] = []
    lost: dict[str, str] = {}
    for item, pull in _each(work, gaps):
        if isinstance(pull, SourceError):
            lost[str(item)] = str(pull)
        else:
            files.append(f"{ROOT}/skipped/{id_}/{item.shard}-{item.begin}.pb")
            work.storage.write(files[-1], pull.body)
    return Skipped(id_, merge(gaps), files, lost)


def _each(work: Work, ranges: list[Range]) -> Iterator[tuple[Range, Pull | SourceError]]:
    """Each log group by itself, or why the service does not give it."""
    service = work.connect()
    for item in ranges:
        for cursor in range(item.begin, item.end):
            one = Range(item.shard, cursor, cursor + 1)
            try:
                yield one, service.pull(item.shard, cursor, cursor + 1, 1)
            except SourceError as error:
                yield one, _again(service, one, error)


def _again(service: LogService, one: Range, error: SourceError) -> Pull | SourceError:
    """The log group after all, or why the service, which answers otherwise, does not give it.

    Raises:
        SourceError: the service gives nothing at all now.
    """
    if isinstance(error, SourceThrottled) or (isinstance(error, SourceRefused) and error.code not in _OF_THE_CURSOR):
        raise error
    service.end(one.shard)
    try:
        return service.pull(one.shard, one.begin, one.end, 1)
    except SourceThrottled:
        raise
    except SourceError as still:
        return still
