"""Names that pages, DAGs and the ledger share: actions that a person may take, steps of a fleet's task, pages, tags."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from enum import Enum

PREFIX = "/slshudi"
"""Where Airflow's API server serves the pages."""
_TAG, _LONGEST = "slshudi:", 100


def tag_of(pipeline: str) -> str | None:
    """The tag by which the pages know a pipeline's DAGs; None for a name that is too long for Airflow's tags."""
    tag = f"{_TAG}{pipeline}"
    return tag if len(tag) <= _LONGEST else None


def pipeline_of(tag: str) -> str | None:
    """The pipeline that a tag names; None if it is not one of `tag_of`."""
    return tag.removeprefix(_TAG) if tag.startswith(_TAG) else None


ALERTS = "slshudi-alerts"
"""The tag of a DAG that names whom Airflow tells of its failures."""


def alerts_by_pipeline(tags: Iterable[tuple[str, str]], paused: Collection[str]) -> dict[str, bool]:
    """Whether a DAG of each pipeline tells of failures: the one that brings new logs, or the watch.

    Args:
        tags: of DAGs, each with its DAG.
        paused: DAGs that do not run.
    """
    pairs = list(tags)
    telling = {dag_id for tag, dag_id in pairs if tag == ALERTS and dag_id not in paused}
    alerts: dict[str, bool] = {}
    for tag, dag_id in pairs:
        if (name := pipeline_of(tag)) is not None:
            of_others = {f"{name}_{role}" for role in ROLES_BESIDE}
            alerts[name] = alerts.get(name, False) or (dag_id in telling and dag_id not in of_others)
    return alerts


BACKFILL = "backfill"
"""The ledger's name for a backfill, which several runs may carry out."""
PART = ".part"
"""What stands between the id of the run that a backfill began with and the number of a later one."""
_PARTS = re.compile(rf"(.+){re.escape(PART)}(\d+)")


def part_of(run: str) -> tuple[str, int]:
    """The run that a backfill began with, and which part of it a run is; a run of another name is its own first."""
    match = _PARTS.fullmatch(run)
    return (match[1], int(match[2])) if match else (run, 1)


DRY_RUN = "backfill, dry run"
"""The ledger's name for a question that starts nothing."""
MOVE_CONSUMER, FORGET_CONSUMER = "move consumer", "forget consumer"
"""The ledger's names for what a person decides of a consumer."""
REPAIR, OVERRIDE = "repair", "override"
"""The roles of the DAGs that do acts: those that lose nothing, and those that may lose data."""
VERIFY, MAINTENANCE = "verify", "maintenance"
"""The roles of the DAGs that prove a table, and that look after its files."""
OPERATIONS = "operations"
"""The role of the DAG that does what those of `OPERATED` do; its param `act` has the role, or the act of a repair."""
OPERATED = (BACKFILL, MAINTENANCE, REPAIR, VERIFY)
ROLES_BESIDE = (*OPERATED, OPERATIONS, OVERRIDE, "recovery")
"""The roles of the DAGs that bring no new logs, and that a watch sees."""


def serving(pipeline: str, role: str, dags: Collection[str], gone_dags: Collection[str] = ()) -> str | None:
    """The one of these DAGs that does what a role does: the role's own, else that of all operations.

    Of `gone_dags`, which no file makes any more and Airflow still knows, only where there is no other.
    """
    dag_ids = [f"{pipeline}_{item}" for item in ((role, OPERATIONS) if role in OPERATED else (role,))]
    return min((dag for dag in dag_ids if dag in dags), key=gone_dags.__contains__, default=None)


def act_params(dag_id: str, act: str) -> dict[str, str]:
    """The params by which a run of a DAG that `serving` gives is asked for an act: none where it does that alone."""
    return {"act": act} if dag_id.endswith(f"_{OPERATIONS}") else {}


PARAMS_SOURCE = "DAG params"
"""`source` of a ConfigError about what a run was given."""


class Act(str, Enum):
    """An act, by the name that a run's param gives it; `does` says what will happen.

    An act that may lose data is done by a DAG with permissions of its own.
    """

    does: str
    needs_transaction: bool
    needs_cursors: bool

    def __new__(cls, name: str, does: str, needs_transaction: bool = False, needs_cursors: bool = False) -> Act:
        """With what it does."""
        act = str.__new__(cls, name)
        act._value_ = name
        act.does, act.needs_transaction, act.needs_cursors = does, needs_transaction, needs_cursors
        return act

    @property
    def may_lose(self) -> bool:
        """Whether it may lose data: rows, logs that were not read, or what the ledger knows alone."""
        return self not in _LOSE_NOTHING

    @property
    def last_commit(self) -> str:
        """What becomes of the table's last commit, in a sentence."""
        return _OF_LAST_COMMIT.get(self, "It stays.")

    @property
    def role(self) -> str:
        """What the name of the DAG that does it ends with."""
        return OVERRIDE if self.may_lose else REPAIR

    RECOVER = (
        "recover",
        "Decides every batch whose run has ended, by what ledger and table show: commits what is written and recorded, "
        "rolls back the rest, whose ranges are read again. A batch that you name is decided also while its run goes "
        "on, which is fenced off.",
    )
    ABANDON = (
        "abandon",
        "Gives the batch up: fences off its run, rolls its instant back, deletes its files. A later batch "
        "reads its ranges again. Readers never saw its rows.",
        True,
    )
    BREAK_LEASE = (
        "break-lease",
        "Ends the leases of runs that decide for the pipeline, unless their process surely lives. A holder that lives "
        "after all finds out before it changes anything.",
    )
    REBUILD_LEDGER = (
        "rebuild-ledger",
        "Replaces what the ledger says of the pipeline by what the table's commits say, and takes other clients' "
        "writes as meant. Pending instants are rolled back; their ranges are read again.",
    )
    TABLE_IS_GONE = (
        "table-is-gone",
        "You say that the table was deleted for good. The ledger forgets all that was written to it, and the next "
        "batches make a new table of all that the service still holds.",
    )
    REBUILD_METADATA = (
        "rebuild-metadata",
        "Compares Hudi's metadata table with the files on storage, and makes it anew if they differ, or if a machine "
        "whose clock was ahead wrote it. Batches wait; afterwards readers see the files that the commits name.",
    )
    REPLAY = (
        "replay",
        "Makes rows of quarantined logs by the pipeline's file as it is now. Those that fit go to the main table and "
        "leave the quarantine in one transaction; the others stay.",
    )
    DISMISS = (
        "dismiss",
        "Forgets the failures that the page shows, say of a run that will not be repeated. What still fails shows "
        "again with its next run.",
    )
    ACCEPT_ERASED = (
        "accept-erased",
        "You say that another client's change, which took rows out of the table or its quarantine (a dropped "
        "partition, a deletion), was meant. Its files before and after are compared: a change that added or changed "
        "rows is refused. The keys of the rows that it took stay on record, so a proof goes on to look for all others; "
        "no batch reads them again.",
    )
    ACCEPT_GAP = (
        "accept-gap",
        "You say that logs which the service dropped unread may be missing. The next plan of the pipeline's tail or "
        "fleet, if it comes within an hour, records them as a gap and goes on behind it.",
    )
    SKIP = (
        "skip",
        "Records cursors of a shard that no batch can read as a gap, and keeps their bytes in files below "
        ".hoodie/slshudi/skipped. No batch reads them any more: their logs will not be in the table.",
        False,
        True,
    )


# The others may lose data: also an act that is added and not listed here.
_LOSE_NOTHING = frozenset({Act.RECOVER, Act.BREAK_LEASE, Act.REBUILD_METADATA, Act.REPLAY, Act.DISMISS})
_OF_LAST_COMMIT = {
    Act.TABLE_IS_GONE: "The ledger forgets it and all before it. Batches read its logs again into a new table, as far "
    "as the service still holds them; the others are lost.",
    Act.REBUILD_LEDGER: "It stays if the table has it. If the table lacks it, the ledger forgets it, and batches read "
    "its logs again, as far as the service still holds them.",
    Act.ACCEPT_ERASED: "It stays, without the rows that the other client took out.",
}
BATCH = "batch"
"""The whole of the task, and its name."""
SYNC = "sync"
"""Its call of the catalog, under the name of the tail's own task for that."""
MIRROR = "mirror"
"""Its mirroring, likewise."""
STEPS = (BATCH, SYNC, MIRROR)
