"""All errors of the package, by what a caller can do about them.

`TransientError`: the same call may succeed later. `TerminalError`: it will not, until a person or a
configuration changes something. Every class carries the ids that it speaks of as attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_LOSSES_TOLD = 20
"""Losses that a DataExpired tells one by one."""


class SlsHudiError(Exception):
    """Base of all errors of this package."""


class TransientError(SlsHudiError):
    """Trying again later may succeed."""


class TerminalError(SlsHudiError):
    """Trying again changes nothing; the message says what to do."""


class ConfigError(TerminalError):
    """A pipeline file or a setting is wrong.

    Attributes: source (file or setting), field (dotted path, may be empty), value (what was found).
    """

    def __init__(self, message: str, *, source: str, field: str = "", value: object = None) -> None:
        super().__init__(message)
        self.source, self.field, self.value = source, field, value


class SourceError(SlsHudiError):
    """The log service answered with an error, or not at all.

    Attributes: project, logstore, shard, cursor (integer, None where the call has none), code (the
    service's errorCode, or the kind of network fault), request_id.
    """

    def __init__(
        self,
        message: str,
        *,
        project: str,
        logstore: str,
        shard: int | None = None,
        cursor: int | None = None,
        code: str = "",
        request_id: str = "",
    ) -> None:
        super().__init__(message)
        self.project, self.logstore, self.shard = project, logstore, shard
        self.cursor, self.code, self.request_id = cursor, code, request_id


class SourceUnavailable(SourceError, TransientError):
    """The service or the way to it failed; the call may be repeated."""


class SourceThrottled(SourceUnavailable):
    """The call exceeded a quota; repeat it more slowly."""


class SourceRefused(SourceError, TerminalError):
    """The service understood and refused: credentials, names or arguments are wrong."""


class SourceCorrupt(SourceError, TransientError):
    """An answer contradicts itself (sizes, counts or cursors disagree), so it is not used."""


class CursorError(TerminalError):
    """A text is no cursor. Attribute: text."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text!r} is no SLS cursor: expected base64 of a decimal integer, or the integer itself")
        self.text = text


class DecodeError(TerminalError):
    """A pull's body is no LogGroupList. Attributes: shard, cursor (of its first log group)."""

    def __init__(self, message: str, *, shard: int, cursor: int) -> None:
        super().__init__(message)
        self.shard, self.cursor = shard, cursor


class DataExpired(TerminalError):
    """Logs that the pipeline should read next are gone from the service.

    Attributes: pipeline, shard, begin, end (the lost half-open range of cursors, which may be empty), more (the shard
    is gone, and was still open when its end was last asked: an unknown number of later logs is lost too), unseen (the
    shard is older than the logstore's retention, and was never looked at before: an unknown number of logs before
    `begin` is lost), others (what else is lost, each as an error of its own).
    """

    def __init__(
        self,
        pipeline: str,
        shard: int,
        begin: int,
        end: int,
        more: bool = False,
        unseen: bool = False,
        others: Sequence[DataExpired] = (),
    ) -> None:
        self.pipeline, self.shard, self.begin, self.end = pipeline, shard, begin, end
        self.more, self.unseen, self.others = more, unseen, tuple(others)
        losses = (self, *self.others)
        losses_text = "; ".join(loss._loss for loss in losses[:_LOSSES_TOLD])
        if len(losses) > _LOSSES_TOLD:
            losses_text += f"; and {len(losses) - _LOSSES_TOLD} more losses like these"
        if self.others:
            groups, shards = sum(loss.end - loss.begin for loss in losses), len({loss.shard for loss in losses})
            losses_text += f". Together these are {groups:,} log groups of {shards} shards, as far as the service tells"
        super().__init__(
            f"pipeline {pipeline}: {losses_text}. Either restore them, or accept the gap with "
            "`source.on_expired: skip` in the pipeline file, which records it"
        )

    @property
    def _loss(self) -> str:
        shard, begin, end = self.shard, self.begin, self.end
        if self.unseen:
            return (
                f"shard {shard} was not seen before, and is older than the logs that its logstore keeps, as far as "
                f"this key may know: its logs before cursor {begin}, if there were any, were never read. (A key "
                "without log:GetLogStore knows of one day only)"
            )
        if self.more:
            read = f"was read up to cursor {end}" if begin == end else f"was read but for [{begin}, {end})"
            return (
                f"shard {shard} is gone from the service. It {read}, its end at the last look. It was still open then: "
                "later logs, if there were any, were never read"
            )
        return (
            f"shard {shard} no longer holds the log groups [{begin}, {end}), which were never read: {end - begin:,} of "
            "them"
        )


class ValueMisfit(TerminalError):
    """A log does not fit its table and the pipeline says that this fails the batch.

    The value is not told: errors stand in logs and in the ledger.

    Attributes: column, type, size (bytes of the value, None if there is none), key (row key
    `{shard}-{cursor}-{index}`), reason (`rows.misfits.Reason`).
    """

    def __init__(self, column: str, type_: str, size: int | None, key: str, reason: str = "conversion") -> None:
        value = f"a value of {size} bytes of log {key}"
        what = f"log {key} has no value" if size is None else f"{value} {reason_text(reason, type_)}"
        advice = (
            "Have them written otherwise, or leave such logs out with `table.upsert.missing_key: drop`"
            if reason == "key"
            else "Correct the column, let such values become NULL with `nullify`, or keep such logs aside with "
            "`quarantine`"
        )
        super().__init__(f"column {column}: {what}. {advice}")
        self.column, self.type, self.reason, self.size, self.key = column, type_, reason, size, key


class TooManyMisfits(TerminalError):
    """More of a batch's logs do not fit than the pipeline's `max_misfits` allows; nothing is committed.

    Attributes: transaction, misfits (logs that do not fit), logs (all of the batch's), share (the greatest allowed).
    """

    def __init__(self, message: str, *, transaction: str, misfits: int, logs: int, share: float) -> None:
        super().__init__(message)
        self.transaction, self.misfits, self.logs, self.share = transaction, misfits, logs, share


class TooManyFiles(TerminalError):
    """A batch spreads over more files than one commit takes; nothing of it is committed.

    Attributes: instant, files (at least so many), most, column (the partition's, empty without one).
    """

    def __init__(self, instant: str, files: int, most: int, column: str) -> None:
        why = f"; each value of the partition column {column} has at least one" if column else ""
        super().__init__(
            f"instant {instant}: the batch has {files} files or more, and one commit takes at most {most}{why}. "
            "Nothing is committed. Make batches smaller (`batch.max_bytes`) or their files larger "
            "(`batch.target_file_bytes`), bound event times (`table.partition.bounds`), or partition by a column with "
            "fewer values, in a pipeline with another name and table"
        )
        self.instant, self.files, self.most, self.column = instant, files, most, column


def reason_text(reason: str, type_: str) -> str:
    """Why a value does not fit: the part of a sentence that follows the value."""
    return {
        "not_utf8": "is no UTF-8",
        "too_large": "is longer than max_bytes",
        "expression": "is what its expression cannot be computed of",
        "late": "is too long ago",
        "future": "is too far in the future",
        "partition": "cannot be the name of a partition's folder",
        "spread": "is in none of the partitions with the most rows, and the batch has more than one commit takes",
        "ordering": "is 0, and Hudi takes a delete with ordering value 0 for the newest row of its key",
        "key": "makes a record key that other values make, too, or that Hudi cannot read back",
    }.get(reason, f"is no {type_}")


class KeyMissing(TerminalError):
    """A log has no value for a column by which its row is upserted.

    Attributes: column, key (`{shard}-{cursor}-{index}` of the log).
    """

    def __init__(self, column: str, key: str) -> None:
        super().__init__(
            f"column {column}: log {key} has no value for it, or an empty one, but rows are upserted by this column. "
            "Correct its `key`, `type` or `format`, or the writer of such logs; or leave them out with "
            "`table.upsert.missing_key: drop`, which counts them"
        )
        self.column, self.key = column, key


class LedgerError(SlsHudiError):
    """An error about the ledger. Attributes: pipeline, transaction (None if it is about no single one)."""

    def __init__(self, message: str, *, pipeline: str = "", transaction: str | None = None) -> None:
        super().__init__(message)
        self.pipeline, self.transaction = pipeline, transaction


class LedgerEmpty(LedgerError, TransientError):
    """The ledger has no tables yet: the first run of a pipeline makes them."""


class LedgerUnavailable(LedgerError, TransientError):
    """The ledger's database did not answer; whether the last change took effect is unknown."""


class LedgerDenied(LedgerError, TerminalError):
    """This process's user may not use the ledger's file. Attributes: path (the file or folder that refuses), owner,
    user.
    """

    def __init__(self, message: str, *, path: str, owner: str, user: str) -> None:
        super().__init__(message)
        self.path, self.owner, self.user = path, owner, user


class LeaseHeld(LedgerError, TransientError):
    """Another run decides for this pipeline at the moment. Attributes: holder, expires (UTC)."""

    def __init__(self, message: str, *, pipeline: str, holder: str, expires: object) -> None:
        super().__init__(message, pipeline=pipeline)
        self.holder, self.expires = holder, expires


class BatchUnderWay(LedgerError, TransientError):
    """Another batch is between its plan and its end, and this one waits for it.

    Attributes: transaction, of the other batch; active (whether a process worked on it lately).
    """

    def __init__(self, message: str, *, pipeline: str, transaction: str, active: bool) -> None:
        super().__init__(message, pipeline=pipeline, transaction=transaction)
        self.active = active


class TailUnderWay(BatchUnderWay):
    """Another run of the same DAG works on a batch of the tail.

    Attribute: quiet_in, the seconds until it would count as quiet if no process worked on it any more.
    """

    def __init__(self, message: str, *, pipeline: str, transaction: str, quiet_in: float) -> None:
        super().__init__(message, pipeline=pipeline, transaction=transaction, active=True)
        self.quiet_in = quiet_in


class Fenced(LedgerError, TerminalError):
    """The transaction changed hands: this token is old. Stop; the new holder goes on. Attribute: token."""

    def __init__(self, message: str, *, pipeline: str = "", transaction: str, token: int) -> None:
        super().__init__(message, pipeline=pipeline, transaction=transaction)
        self.token = token


class IllegalTransition(LedgerError, TerminalError):
    """The transaction is not in the state that this change starts from. Attributes: found, wanted."""

    def __init__(self, message: str, *, transaction: str, found: str, wanted: str) -> None:
        super().__init__(message, transaction=transaction)
        self.found, self.wanted = found, wanted


class RangeConflict(LedgerError, TerminalError):
    """Ranges to be reserved are already covered or reserved. Attribute: ranges."""

    def __init__(self, message: str, *, pipeline: str, ranges: object) -> None:
        super().__init__(message, pipeline=pipeline)
        self.ranges = ranges


class ConsumerUnderWay(LedgerError, TransientError):
    """Another run has taken what the consumer is to be given next. Attributes: consumer, taker (that run)."""

    def __init__(self, message: str, *, pipeline: str, consumer: str, taker: str) -> None:
        super().__init__(message, pipeline=pipeline)
        self.consumer, self.taker = consumer, taker


class ConsumerFenced(LedgerError, TerminalError):
    """What a run took for a consumer was taken by another run since. Attribute: consumer."""

    def __init__(self, message: str, *, pipeline: str, consumer: str) -> None:
        super().__init__(message, pipeline=pipeline)
        self.consumer = consumer


class ConsumerBehind(LedgerError, TerminalError):
    """Cleaning went past commits that a consumer has not confirmed, whose rows later commits changed.

    Attributes: consumer, place (the first from which on commits can be read in full).
    """

    def __init__(self, message: str, *, pipeline: str, consumer: str, place: int) -> None:
        super().__init__(message, pipeline=pipeline)
        self.consumer, self.place = consumer, place


class ReplayUnderWay(LedgerError, TransientError):
    """Another replay of the pipeline is not decided yet."""


class PipelineConflict(LedgerError, TerminalError):
    """Another pipeline already owns this table, or this name belongs to another source. Attribute: other."""

    def __init__(self, message: str, *, pipeline: str, other: str) -> None:
        super().__init__(message, pipeline=pipeline)
        self.other = other


class TableError(SlsHudiError):
    """An error about the Hudi table. Attributes: table (base path), instant (None if it is about no single one)."""

    def __init__(self, message: str, *, table: str, instant: str | None = None) -> None:
        super().__init__(message)
        self.table, self.instant = table, instant


class TimelineUnreadable(TableError, TransientError):
    """The timeline could not be read; nothing may be concluded from that."""


class TableSilent(TimelineUnreadable):
    """The file system below a table does not answer at all; a process that asks it may wait for good."""


class WritesRefused(TimelineUnreadable):
    """The file system below a table takes no writes: it is full, a quota is used up, or it is read-only.

    A step that meets it ends as where the storage does not answer.
    """


class ClockAhead(TableError, TransientError):
    """This machine's clock is far ahead of the ledger's; its writes would stop all others until that time.

    Attributes: now (this machine's clock, UTC), ledger (the ledger's, UTC).
    """

    def __init__(self, message: str, *, table: str, now: object, ledger: object) -> None:
        super().__init__(message, table=table)
        self.now, self.ledger = now, ledger


class ClockBehind(TableError, TransientError):
    """This machine's clock is behind the newest time on the timelines; readers would not see rows written now.

    Attributes: instant (that time, as Hudi writes it), now (this machine's clock, UTC).
    """

    def __init__(self, message: str, *, table: str, instant: str, now: object) -> None:
        super().__init__(message, table=table, instant=instant)
        self.now = now


class TableDenied(TableError, TerminalError):
    """This process's user may not use a file of the table, or would leave files that the table's owner may not use.

    Attributes: path (the file or folder that refuses), owner, user.
    """

    def __init__(self, message: str, *, table: str, path: str, owner: str, user: str) -> None:
        super().__init__(message, table=table)
        self.path, self.owner, self.user = path, owner, user


class TableMismatch(TableError, TerminalError):
    """The table at this path is not the one that the pipeline describes."""


class ColumnMismatch(TableMismatch):
    """The table's columns cannot become the ones that the pipeline asks for.

    Attribute: columns, each (name, type there, type in the file).
    """

    def __init__(self, message: str, *, table: str, columns: tuple[tuple[str, str, str], ...]) -> None:
        super().__init__(message, table=table)
        self.columns = columns


class ForeignWrite(TableError, TerminalError):
    """Another client wrote to a table of ours.

    Attributes: operation (Hudi's name of the write).
    """

    def __init__(self, message: str, *, table: str, instant: str | None, operation: str) -> None:
        super().__init__(message, table=table, instant=instant)
        self.operation = operation


class CommitStateUnknown(TableError, TransientError):
    """It is not known whether a commit that was asked for happened. The next run's settle finds out."""


class LedgerAhead(TableError, TerminalError):
    """The ledger says COMMITTED, the timeline does not know the instant: the table was restored or replaced.

    Attribute: transaction.
    """

    def __init__(self, message: str, *, table: str, instant: str | None, transaction: str) -> None:
        super().__init__(message, table=table, instant=instant)
        self.transaction = transaction


class LedgerLost(TableError, TerminalError):
    """The timeline holds a transaction of ours that the ledger does not know. Attribute: transaction."""

    def __init__(self, message: str, *, table: str, instant: str | None, transaction: str) -> None:
        super().__init__(message, table=table, instant=instant)
        self.transaction = transaction


class RangesDoubled(TableError, TerminalError):
    """Commits of one pipeline hold the same ranges: two ledgers decided for the table.

    Attribute: ranges, each (transaction, its `Range` that an earlier commit holds).
    """

    def __init__(self, message: str, *, table: str, instant: str | None, ranges: list[tuple[str, object]]) -> None:
        super().__init__(message, table=table, instant=instant)
        self.ranges = ranges


class ManifestError(TableError, TerminalError):
    """An append's manifest is missing, old, or does not add up. Attribute: transaction."""

    def __init__(self, message: str, *, table: str, transaction: str, instant: str | None = None) -> None:
        super().__init__(message, table=table, instant=instant)
        self.transaction = transaction


class CheckFailed(TerminalError):
    """A batch does not meet the pipeline's `checks`; nothing of it is committed.

    Attributes: pipeline, transaction, checks (failed ones: name to finding).
    """

    def __init__(self, message: str, *, pipeline: str, transaction: str, checks: dict[str, str]) -> None:
        super().__init__(message)
        self.pipeline, self.transaction, self.checks = pipeline, transaction, checks


class CatalogFailed(TransientError):
    """The metastore does not answer, or refused the table; nothing of the table depends on it.

    Attributes: pipeline, metastore.
    """

    def __init__(self, message: str, *, pipeline: str, metastore: str) -> None:
        super().__init__(message)
        self.pipeline, self.metastore = pipeline, metastore


class MirrorError(SlsHudiError):
    """An error about a mirror; the Hudi table does not depend on it. Attributes: pipeline, mirror (iceberg, delta)."""

    def __init__(self, message: str, *, pipeline: str, mirror: str) -> None:
        super().__init__(message)
        self.pipeline, self.mirror = pipeline, mirror


class MirrorFailed(MirrorError, TransientError):
    """A mirror's catalog or storage does not answer, or another run came first; the next run looks where it stands."""


class MirrorRefused(MirrorError, TerminalError):
    """A mirror cannot show the table as it is; the message says why and what to do."""


class JobFailed(SlsHudiError):
    """A Spark job failed.

    Attributes: verb, returncode, tail (last lines of its log), error (the name of the error in the driver, of this
    module or not; empty if the driver could not say), fields (that error's attributes, where it is of this module and
    was raised in the driver itself).
    """

    def __init__(
        self,
        message: str,
        *,
        verb: str,
        returncode: int | None = None,
        tail: str = "",
        error: str = "",
        fields: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.verb, self.returncode, self.tail, self.error = verb, returncode, tail, error
        self.fields = dict(fields or {})

    @property
    def cause(self) -> type[SlsHudiError]:
        """The class of the driver's error where it is one of this module, else JobFailed."""
        error_class = globals().get(self.error)
        return error_class if isinstance(error_class, type) and issubclass(error_class, SlsHudiError) else JobFailed


class JobDenied(JobFailed, TerminalError):
    """A Spark job failed since its user may not use a file of the table; the message names file, owner and user."""


class ExecutorUnfit(TerminalError):
    """An executor's Python cannot run this package, or runs another version of it; nothing was read.

    Attributes: host.
    """

    def __init__(self, message: str, *, host: str) -> None:
        super().__init__(message)
        self.host = host


class RuntimeMissing(TerminalError):
    """Java, the Hudi bundle, or another part of the machine is missing or of the wrong version."""
