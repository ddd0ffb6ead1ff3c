"""What each error asks of a person: something to do elsewhere, an act that a page offers, or nothing.

The manual's table of errors says the same at length (docs/operating.md); a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_slshudi.handover.names import Act
from airflow_provider_slshudi.ledger.records import AuditEntry


@dataclass(frozen=True)
class Advice:
    """What to do about an error.

    Attributes:
        text: in a sentence or two; the error's own message has the particulars.
        acts: what the page offers, the likeliest first.
        run: whether the pipeline runs again as soon as what the text asks for is done.
        field: the field of the pipeline's file that has to be edited; empty where none has.
        is_connection: whether a connection may have to be edited.
    """

    text: str
    acts: tuple[Act, ...] = ()
    run: bool = False
    field: str = ""
    is_connection: bool = False


def _nothing(text: str = "Nothing: it passes by itself.", is_connection: bool = False) -> Advice:
    return Advice(text, is_connection=is_connection)


def _again(text: str, field: str = "", is_connection: bool = False) -> Advice:
    return Advice(text, run=True, field=field, is_connection=is_connection)


_OWNER = _again("Work as the owner that the message names, or give the files to the user of the pipelines.")
_RECOVERED = Advice("Nothing: the next run decides the batch. It can be decided now.", (Act.RECOVER,))
_REBUILD = Advice(
    "The table is the truth about what is committed: make the ledger anew from it. Pause the pipeline's DAGs first.",
    (Act.REBUILD_LEDGER,),
)

ADVICE: Mapping[str, Advice] = {
    "ConfigError": _again(
        "Correct what the message names: a pipeline file, a connection or a parameter.", is_connection=True
    ),
    "ConnectionMissing": _again("Add the connection that the message names.", is_connection=True),
    "RuntimeMissing": Advice(
        "Install, set or take away what the message names, on the machine where it failed.", run=True
    ),
    "ExecutorUnfit": _again(
        "Install this package on the host that the message names, or make the archive anew and name it in the "
        "pipeline's file.",
        field="spark",
        is_connection=True,
    ),
    "SourceUnavailable": _nothing(),
    "SourceThrottled": _nothing("Nothing: it passes by itself. If it goes on, raise the quota."),
    "SourceRefused": _again(
        "Correct the key, its permissions, the names or the clock, as the message says.",
        field="source",
        is_connection=True,
    ),
    "SourceCorrupt": _nothing("Nothing: it passes by itself. Report it if it goes on."),
    "CursorError": Advice("Correct the parameter and trigger the run again."),
    "DecodeError": Advice(
        "Report it, with shard and cursor. `slshudi skip` shows which log groups cannot be read, and gives them up: a "
        "batch records them as a gap, and the pipeline goes on behind it.",
        (Act.SKIP,),
    ),
    "DataExpired": Advice(
        "The service dropped logs that no batch had read. Restore them, or accept the gap: it is recorded, and the "
        "pipeline goes on behind it.",
        (Act.ACCEPT_GAP,),
        run=True,
        field="source",
    ),
    "ValueMisfit": Advice(
        "Correct the column in the pipeline's file, or let misfits be nullified or quarantined.",
        run=True,
        field="columns",
    ),
    "TooManyMisfits": _again("Correct the columns in the pipeline's file, or allow more misfits.", field="max_misfits"),
    "ReplayUnderWay": Advice("Wait for the replay that is under way; if it died, decide it.", (Act.RECOVER,)),
    "CheckFailed": Advice(
        "Mend the source, or the check in the pipeline's file. The same ranges are read again.",
        run=True,
        field="checks",
    ),
    "CatalogFailed": Advice(
        "Look after the metastore. The batch is committed; the next run tells the catalog.", run=True, field="catalog"
    ),
    "MirrorFailed": Advice(
        "Look after the mirror's catalog. The batch is committed; the next run brings the mirror up to date.",
        run=True,
        field="mirror",
        is_connection=True,
    ),
    "MirrorRefused": Advice(
        "Do what the message says, then let the next run make the mirror anew. The batch is committed.",
        run=True,
        field="mirror",
        is_connection=True,
    ),
    "KeyMissing": _again("Correct the column, or what writes such logs, or let them be dropped.", field="columns"),
    "TooManyFiles": _again("Make batches smaller, files larger, or partitions fewer.", field="batch"),
    "BatchUnderWay": _nothing("Nothing: batches of this table go one after the other."),
    "TailUnderWay": _nothing("Nothing: this run waits for the batch of another run, or is skipped."),
    "LedgerEmpty": _nothing("Nothing: the first run of a pipeline makes its tables."),
    "LedgerUnavailable": _nothing("Nothing here: look after the ledger's database.", is_connection=True),
    "LedgerDenied": _again("Give the ledger's file to the user that runs the pipelines."),
    "TableDenied": _OWNER,
    "JobDenied": _OWNER,
    "LeaseHeld": Advice(
        "Nothing: it takes seconds, or about three minutes if the machine that decided is gone. If it does not end, "
        "end the lease.",
        (Act.BREAK_LEASE,),
    ),
    "Fenced": _nothing("Nothing: another run decided the batch, and this one is over."),
    "IllegalTransition": _RECOVERED,
    "RangeConflict": _nothing("Nothing: the next run plans again."),
    "ConsumerUnderWay": _nothing("Nothing: it is given to another run once the one that has taken it is over."),
    "ConsumerFenced": _nothing("Nothing: another run has taken it since, and confirms it."),
    "ConsumerBehind": Advice(
        "Do what the message says: read what is still there if the consumer needs it, then set its place by `slshudi "
        "consumers move`. Let it run more often, or raise its `hold`."
    ),
    "PipelineConflict": _again(
        "First put the source and the table's path in the pipeline's file back to what the message names. A pipeline "
        "of its own needs another name and table.",
        field="table",
    ),
    "TimelineUnreadable": Advice(
        "If the table's path in the pipeline's file was edited, put it back. Else look after the table's storage: "
        "mounts, credentials, endpoint. Batches go on once it is back. Only if the table was deleted for good, say so.",
        (Act.TABLE_IS_GONE,),
        field="table",
    ),
    "WritesRefused": Advice(
        "Make room on the disk that the message names, raise its quota, or mount it writable. Nothing is lost: runs "
        "go on by themselves, and no table has to be made anew.",
        run=True,
    ),
    "TableSilent": _again(
        "Look after the mount below the table. A fleet's scheduled runs ask again after ten minutes."
    ),
    "ClockAhead": _again("Correct the clock that is wrong, the machine's or the database's."),
    "ClockBehind": Advice(
        "Set the machine's clock. If the clock of another machine was ahead and the message names a metadata table, "
        "make that anew.",
        (Act.REBUILD_METADATA,),
        run=True,
    ),
    "CommitStateUnknown": _RECOVERED,
    "ForeignWrite": Advice(
        "Find out who wrote to the table. If the write only took rows away and was meant, accept that they are erased. "
        "If it added or changed rows and was meant, the ledger takes the table as it is. Otherwise restore the table "
        "and its quarantine to before it, and then make the ledger anew.",
        (Act.ACCEPT_ERASED, Act.REBUILD_LEDGER),
    ),
    "ColumnMismatch": _again("Do what the message says of each column, in the pipeline's file.", field="columns"),
    "TableMismatch": _again("Correct the path, or find out who else writes the table.", field="table"),
    "LedgerAhead": _REBUILD,
    "LedgerLost": _REBUILD,
    "RangesDoubled": Advice(
        "Two ledgers committed the same logs. Pause the pipeline's DAGs, restore the table and its quarantine to "
        "before the second copy, then make the ledger anew from the table.",
        (Act.REBUILD_LEDGER,),
    ),
    "ManifestError": _RECOVERED,
    "TableError": Advice(
        "Read the message; the next run looks again. If it names the metadata table, make that anew.",
        (Act.RECOVER, Act.REBUILD_METADATA),
    ),
    "JobFailed": Advice(
        "The message has the reason, or the last line with an error; the task's log has all. Decide the batch now, or "
        "leave it to the next run.",
        (Act.RECOVER,),
    ),
}

UNKNOWN = Advice("Read the message, and the task's log.", run=True)


def advice(error: str) -> Advice:
    """What to do about an error, by its class."""
    return ADVICE.get(error, UNKNOWN)


def remedy(deed: AuditEntry) -> Advice | None:
    """What to do about an act that failed; None for one that did what it should, or has not ended."""
    return ADVICE.get((deed.result or "").partition(": ")[0])
