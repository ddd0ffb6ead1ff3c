"""A transaction's part in a table beside the main one: how far it is, how to finish it, and whether both agree."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from airflow_provider_slshudi.exceptions import ManifestError, TableError, TableMismatch
from airflow_provider_slshudi.handover import batch_files, erasures
from airflow_provider_slshudi.handover.batch_files import QUARANTINE, ROUTE, Attempt
from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.hudi import beside
from airflow_provider_slshudi.hudi.beside import Beside, Place
from airflow_provider_slshudi.hudi.instant_metadata import (
    COMMIT_ACTION,
    PIPELINE_KEY,
    SERVICES,
    digest_of_manifest,
    has_part,
)
from airflow_provider_slshudi.hudi.layout import PROPERTIES
from airflow_provider_slshudi.hudi.timeline import CHANGES, Timeline
from airflow_provider_slshudi.ledger.lease import Lease
from airflow_provider_slshudi.ledger.records import Transaction
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.transaction.context import Work


@dataclass(frozen=True)
class Look:
    """What one look saw of a table beside: its timeline, empty where there is none, and where such tables were made."""

    timeline: Timeline
    places: Sequence[Place]


class TableBeside:
    """A table beside the pipeline's: a batch's part in it follows the instant of that table.

    Args:
        work: the pipeline's.
        key: the table's, see `hudi.beside`.
        path: where it is, if its route is not in the pipeline's file.
    """

    def __init__(self, work: Work, key: str = QUARANTINE, path: str = "") -> None:
        self.work, self.key = work, key
        self.beside = Beside(key, work.pipeline, path)
        self._called = self.beside.called

    @property
    def path(self) -> str:
        """Where the pipeline's file has the table now."""
        return self.beside.storage.uri

    def storage(self, instant: str | None = None) -> Storage:
        """The table's storage; with `instant`, the one that the instant was opened with, if its owner has one."""
        owner = batch_files.read_owner(self.work.storage, instant) if instant else None
        path = None if owner is None else owner.beside.get(self.key)
        return Storage(path) if path else self.beside.storage

    def places(self) -> list[Place]:
        """Where tables of this key were made."""
        return beside.places(self.beside)

    def may_exist(self, made: Sequence[Place], storage: Storage | None = None) -> bool:
        """Whether there may be such a table: at `storage`, else at its present place.

        The record of places lies in the main table's folder: a table that was restored alone has lost it.
        """
        table = self.beside if storage is None else self.beside.at(storage)
        return beside.is_known(table, made) or table.storage.read(PROPERTIES) is not None

    def timeline(self, instant: str | None = None) -> Timeline:
        """The timeline of the table, see `storage`.

        Raises:
            TimelineUnreadable: it could not be read; or the table is not where it was made, say not mounted.
        """
        return self._timeline_at(self.storage(instant), self.places())

    def _timeline_at(self, storage: Storage, made: Sequence[Place], loaded: Timeline | None = None) -> Timeline:
        """As `timeline`; `made` are the places where it was made, for which one request is enough mostly."""
        if loaded is None:
            loaded = Timeline.load(storage) if self.may_exist(made, storage) else Timeline(storage, {})
        if not any(loaded) and any(place.is_at(storage) for place in made):
            beside.require_there(self.beside.at(storage))
        return loaded

    def is_pending(self, instant: str) -> bool:
        """Whether the table has the instant pending, or half rolled back."""
        return beside.is_pending(self.timeline(instant), instant)

    def has_part(self, transaction: Transaction) -> bool:
        """Whether a recorded transaction has a part in the table."""
        facts = transaction.manifest or {}
        if self.key == QUARANTINE:
            return facts.get("quarantined") is not None
        return self.key in (facts.get("routed") or {})

    def is_settled(self, transaction: Transaction) -> bool:
        """Whether the transaction's part in the table is completed, or it has none.

        Raises:
            TableMismatch: another client took that part away.
        """
        if not self.has_part(transaction):
            return True
        instant, storage = str(transaction.instant), self.storage(transaction.instant)
        timeline = self._timeline_at(storage, self.places(), Timeline.load(storage))
        if beside.is_completed(timeline, instant):
            return True
        if not beside.is_pending(timeline, instant):
            raise beside.gone(self.beside, instant, self.storage(instant).uri)
        return False

    def pending(self, seen: Look | None = None) -> list[str]:
        """Pending commits here and at former places, and instants that an unfinished rollback there names.

        Reads the table's timeline anew unless `seen` has it.
        """
        return sorted(self._pending(seen))

    def _pending(self, seen: Look | None = None) -> dict[str, str]:
        """The instants of `pending`, each with the URI of its table."""
        instants: dict[str, str] = {}
        for storage, timeline in self.everywhere(seen):
            # Without cleans: the next clean finishes those.
            commits = (instant.time for instant in timeline.pending() if instant.action == COMMIT_ACTION)
            instants |= dict.fromkeys((*commits, *timeline.rolling_back), storage.uri)
        return instants

    def everywhere(self, seen: Look | None = None) -> Iterator[tuple[Storage, Timeline]]:
        """The table and its former places, each with its timeline, which is empty if a former one is away."""
        here, made = self.storage(), self.places() if seen is None else seen.places
        yield here, self._timeline_at(here, made, None if seen is None else seen.timeline)
        for place in made:
            if not place.is_at(here):
                yield place.storage, Timeline.load(place.storage)

    def finish(self, lease: Lease, committed: Mapping[str, str]) -> list[str]:
        """Completes the table's pending instants of batches that the main table has; returns these instants.

        `committed` has the main table's instants with their transactions.

        Raises:
            TableMismatch: the batch's manifest is gone.
        """
        pending_instants = {
            instant: where for instant, where in sorted(self._pending().items()) if instant in committed
        }
        for instant, where in pending_instants.items():
            try:
                order = self._order(instant, committed[instant], where)
            except ManifestError as error:
                raise beside.gone(self.beside, instant, where) from error
            self.work.change(lease, Verb.COMMIT, order)
            if instant in self._pending():
                raise TableError(
                    f"{where}: the job ended well, but instant {instant} is still pending", table=where, instant=instant
                )
        return list(pending_instants)

    def _order(self, instant: str, id_: str, where: str) -> JobOrder:
        """The order to commit a batch again: the main table has it, and only parts beside it are left to do."""
        work = self.work
        extra = work.timeline().extra_of(instant) or {}
        digest = digest_of_manifest(extra)
        token = batch_files.token_of(work.storage, id_, instant, digest)
        extra_digest = Attempt(work.storage, id_, instant, token).leave_extra(extra)
        # Only its place concerns the table: not the batch's order, which a rebuilt ledger could not vouch for.
        described = work.pipeline.model_dump(mode="json")
        if self.key == QUARANTINE:
            described["quarantine"]["path"] = where
        for route in described["routes"]:
            if self.key == f"{ROUTE}{route['name']}":
                route["path"] = where
        return JobOrder(described, id_, token, instant, digest or "", extra_digest)

    def require_known(self) -> None:
        """Raises TimelineUnreadable where the table is not where it was made, see `hudi.beside.require_known`."""
        beside.require_known(self.beside)

    def require_whole(self, commits: Iterable[tuple[str, Mapping[str, str]]]) -> None:
        """Checks that the table has its parts of the main table's commits: instants with their extra metadata.

        Skips commits that are older than the table.

        Raises:
            TableMismatch: the table lacks a commit's part; it was restored alone.
            TimelineUnreadable: see `_completed`.
        """
        done, creation_instants = self._completed(), [place.since for place in self.places()]
        # Where it is not recorded when the quarantine was made, it counts as made with its oldest commit.
        since = min(creation_instants) if creation_instants and all(creation_instants) else min(done, default=None)
        for instant, extra in commits:
            if has_part(extra, self.key) and since is not None and since <= instant and instant not in done:
                raise beside.gone(self.beside, instant)

    def require_no_more(self, main: Container[str]) -> None:
        """Refuses a table beside with commits that are not among the main table's instants (`main`).

        Raises:
            TableMismatch: it has such commits; the main table was restored alone.
            TimelineUnreadable: see `_completed`.
        """
        if more := sorted(instant for instant in self._completed() if instant not in main):
            raise self._restored_alone(more[0])

    def require_no_newer(self, main: Timeline, seen: Look | None = None) -> None:
        """As `require_no_more`, for the table's active timeline alone; call it before each batch.

        Raises:
            ForeignWrite: another client changed the table, and no person accepted it.
        """
        work, here = self.work, self.timeline() if seen is None else seen.timeline
        name = work.pipeline.name
        active = {instant.time for instant in main.completed(*CHANGES)}
        accepted = work.ledger.accepted(name)
        for instant in here.completed(*CHANGES):
            if instant.time in active:
                continue
            pipeline, operation = here.extra_metadata(instant).get(PIPELINE_KEY), here.operation(instant)
            if pipeline is None and operation not in SERVICES and str(instant.completion) > accepted:
                erasures.require_accepted(work.storage, self.storage().uri, name, self.key, instant.time, operation)
            # Archival takes a table's commits in order: none since the oldest active one is archived.
            is_newer = pipeline == name and instant.time >= min(active, default="")
            if is_newer and main.archived(instant.time) is None:
                raise self._restored_alone(instant.time)

    def _restored_alone(self, instant: str) -> TableMismatch:
        work, path = self.work, self.storage().uri
        return TableMismatch(
            f"{path}: the {self._called} has completed instant {instant}, but {work.storage.uri} does not have it: a "
            "client restored or replaced that table alone, or it is not mounted. Logs that are read again would be "
            f"{'quarantined' if self.key == QUARANTINE else 'there'} twice. Restore both tables to before this instant "
            "with Hudi, then run `slshudi ledger rebuild "
            f"{work.pipeline.name}`; later logs are read again",
            table=path,
            instant=instant,
        )

    def _completed(self) -> set[str]:
        """The instants of this pipeline's commits in the table, archived ones and those at former places too.

        Raises:
            TimelineUnreadable: the table is gone from a place where it was made.
        """
        instants, name = set[str](), self.work.pipeline.name
        for storage, timeline in self.everywhere():
            if not any(timeline):
                beside.require_there(self.beside.at(storage))
            # A former place may have another pipeline's table by now.
            commits = timeline.commits()
            instants |= {commit.time for commit in commits if commit.extra.get(PIPELINE_KEY) == name}
        return instants
