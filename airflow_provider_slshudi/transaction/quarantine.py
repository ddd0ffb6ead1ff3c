"""A transaction's part in the quarantine: how far it is, how to finish it, and whether both tables agree."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from airflow_provider_slshudi.exceptions import ForeignWrite, ManifestError, TableError, TableMismatch
from airflow_provider_slshudi.handover import batch_files, erasures, fencing
from airflow_provider_slshudi.handover.batch_files import Claim
from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.hudi import leftovers, quarantine
from airflow_provider_slshudi.hudi.instant_metadata import COMMIT_ACTION, PIPELINE_KEY, QUARANTINE_KEY, SERVICES
from airflow_provider_slshudi.hudi.layout import PROPERTIES, Instant
from airflow_provider_slshudi.hudi.quarantine import Place
from airflow_provider_slshudi.hudi.timeline import CHANGES, Timeline
from airflow_provider_slshudi.ledger.lease import Lease
from airflow_provider_slshudi.ledger.records import Transaction
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.transaction import timeline_view
from airflow_provider_slshudi.transaction.context import Work


@dataclass(frozen=True)
class Timelines:
    """The timelines of a pipeline's tables as one look saw them.

    Attributes:
        main: the table's.
        aside: the quarantine's, empty where there is none.
        places: where quarantines were made.
    """

    main: Timeline
    aside: Timeline
    places: Sequence[Place]


def storage_of(work: Work, instant: str | None = None) -> Storage:
    """The quarantine's storage; with `instant`, the one that the instant was opened with, if its owner names one."""
    owner = batch_files.read_owner(work.storage, instant) if instant else None
    return Storage((owner and owner.quarantine) or work.pipeline.quarantine_path)


def timeline_of(work: Work, instant: str | None = None) -> Timeline:
    """The timeline of the quarantine, see `storage_of`.

    Raises:
        TimelineUnreadable: it could not be read; or the quarantine is not where it was made, say not mounted.
    """
    return _timeline_at(work, storage_of(work, instant), quarantine.places(work.storage))


def _timeline_at(work: Work, storage: Storage, made: Sequence[Place], loaded: Timeline | None = None) -> Timeline:
    """As `timeline_of`; `made` are the places where a quarantine was made."""
    loaded = loaded or _load(work, storage, made)
    if not any(loaded) and any(place.is_at(storage) for place in made):
        quarantine.require_there(work.storage, storage)
    return loaded


def _load(work: Work, storage: Storage, made: Sequence[Place]) -> Timeline:
    """The quarantine's timeline; most pipelines have none, for which one request is enough."""
    return Timeline.load(storage) if _may_exist(work, storage, made) else Timeline(storage, {})


def _may_exist(work: Work, storage: Storage, made: Sequence[Place]) -> bool:
    """Whether there may be a quarantine at `storage`.

    The record of places lies in the table's folder: a table that was restored alone has lost it.
    """
    return quarantine.is_known(work.pipeline, storage, made) or storage.read(PROPERTIES) is not None


def require_answer(work: Work, seconds: float) -> None:
    """Checks that the file systems of the table and its quarantine answer, and those of former places of that, unless
    the table is in an object store.

    Raises:
        TableSilent: see `Storage.require_answer`.
    """
    work.storage.require_answer(seconds)
    # Each request to a store costs money.
    former = quarantine.places(work.storage) if work.storage.renames else []
    for uri in {work.pipeline.quarantine_path, *(place.storage.uri for place in former)}:
        Storage(uri).require_answer(seconds)


def fence(work: Work, instant: str) -> None:
    """Withdraws an instant's orders and shuts it in both tables, see `handover.fence`."""
    for storage in (work.storage, storage_of(work, instant)):
        fencing.fence(storage, instant)


@contextmanager
def swept(work: Work, instant: str) -> Iterator[None]:
    """Wraps the rollback of an instant in both tables, see `leftovers.swept`."""
    # A completion that was cut off after Hudi had deleted the markers: only the manifest still names the files.
    main, aside = batch_files.written(work.storage, instant)
    with leftovers.swept(work.storage, instant, main), leftovers.swept(storage_of(work, instant), instant, aside):
        yield


def timelines(work: Work, places: Sequence[Place], tables: Sequence[Storage]) -> Timelines:
    """Reads the timeline of each of `tables`, see `existing`; the ledger keeps what the table's own shows.

    Raises:
        TimelineUnreadable: see `Work.timeline`.
    """
    [aside] = map(Timeline.load, tables[1:]) if len(tables) > 1 else [Timeline(storage_of(work), {})]
    return Timelines(timeline_view.timeline(work), aside, places)


def places_of(work: Work) -> list[Place]:
    """Where quarantines of the table were made."""
    return quarantine.places(work.storage)


def storages(work: Work) -> tuple[Storage, Storage]:
    """The storage of the table, and of its quarantine."""
    return work.storage, storage_of(work)


def existing(work: Work, places: Sequence[Place]) -> list[Storage]:
    """The storage of the table, and of its quarantine where there may be one; `places` are as `places_of`."""
    aside = storage_of(work)
    return [work.storage, aside] if _may_exist(work, aside, places) else [work.storage]


def is_pending(work: Work, instant: str) -> bool:
    """Whether the quarantine has the instant pending, or half rolled back."""
    return quarantine.is_pending(timeline_of(work, instant), instant)


def is_settled(work: Work, transaction: Transaction) -> bool:
    """Whether the transaction's part in the quarantine is completed, or it has none.

    Raises:
        TableMismatch: another client took that part away.
    """
    if (transaction.manifest or {}).get("quarantined") is None:
        return True
    instant, storage = str(transaction.instant), storage_of(work, transaction.instant)
    timeline = _timeline_at(work, storage, places_of(work), Timeline.load(storage))
    if quarantine.is_completed(timeline, instant):
        return True
    if not quarantine.is_pending(timeline, instant):
        raise quarantine.gone(storage_of(work, instant).uri, instant)
    return False


def pending(work: Work, seen: Timelines | None = None) -> list[str]:
    """Pending commits of the quarantine and its former places, and instants that an unfinished rollback there names.

    Reads the quarantine's timeline anew unless `seen` has it.
    """
    return sorted(_pending(work, seen))


def _pending(work: Work, seen: Timelines | None = None) -> dict[str, str]:
    """The instants of `pending`, each with the URI of its quarantine."""
    instants: dict[str, str] = {}
    for storage, timeline in _everywhere(work, seen):
        # Without cleans: the next clean finishes those.
        commits = (instant.time for instant in timeline.pending() if instant.action == COMMIT_ACTION)
        instants |= dict.fromkeys((*commits, *timeline.rolling_back), storage.uri)
    return instants


def _everywhere(work: Work, seen: Timelines | None = None) -> Iterator[tuple[Storage, Timeline]]:
    """The quarantine and its former places, each with its timeline, which is empty if a former one is away."""
    here, places = storage_of(work), quarantine.places(work.storage) if seen is None else seen.places
    yield here, _timeline_at(work, here, places, None if seen is None else seen.aside)
    for place in places:
        if not place.is_at(here):
            yield place.storage, Timeline.load(place.storage)


def finish(work: Work, lease: Lease, committed: Mapping[str, str]) -> list[str]:
    """Completes the quarantine's pending instants of batches that the main table has; returns these instants.

    `committed` has the main table's instants with their transactions.

    Raises:
        TableMismatch: the batch's manifest is gone.
    """
    pending_instants = {instant: where for instant, where in sorted(_pending(work).items()) if instant in committed}
    for instant, where in pending_instants.items():
        try:
            order = _order(work, instant, committed[instant], where)
        except ManifestError as error:
            raise quarantine.gone(where, instant) from error
        work.change(lease, Verb.COMMIT, order)
        if instant in _pending(work):
            raise TableError(
                f"{where}: the job ended well, but instant {instant} is still pending", table=where, instant=instant
            )
    return list(pending_instants)


def _order(work: Work, instant: str, id_: str, where: str) -> JobOrder:
    """The order to commit a batch again: the main table has it, and only the quarantine's part is left to do."""
    extra = work.timeline().extra_of(instant) or {}
    digest = json.loads(extra.get(QUARANTINE_KEY, "{}")).get("digest")
    token = batch_files.token_of(work.storage, id_, instant, digest)
    extra_digest = Claim(work.storage, id_, instant, token).leave_extra(extra)
    # Only its place concerns the quarantine: not the batch's order, which a rebuilt ledger could not vouch for.
    described = work.pipeline.model_dump(mode="json")
    described["quarantine"]["path"] = where
    return JobOrder(described, id_, token, instant, digest, extra_digest)


def require_known(work: Work) -> None:
    """Raises TimelineUnreadable where the quarantine is not where it was made, see `quarantine.require_known`."""
    quarantine.require_known(work.storage, storage_of(work))


def require_whole(work: Work, commits: Iterable[tuple[str, Mapping[str, str]]]) -> None:
    """Checks that the quarantine has its parts of the main table's commits, each an instant with its extra metadata.

    Skips commits that are older than the quarantine.

    Raises:
        TableMismatch: the quarantine lacks a commit's part; it was restored alone.
        TimelineUnreadable: see `_completed`.
    """
    done, creation_instants = _completed(work), [place.since for place in quarantine.places(work.storage)]
    # Where it is not recorded when the quarantine was made, it counts as made with its oldest commit.
    since = min(creation_instants) if creation_instants and all(creation_instants) else min(done, default=None)
    for instant, extra in commits:
        if QUARANTINE_KEY in extra and since is not None and since <= instant and instant not in done:
            raise quarantine.gone(storage_of(work).uri, instant)


def require_no_more(work: Work, main: Container[str]) -> None:
    """Refuses a quarantine with commits that are not among the main table's instants (`main`).

    Raises:
        TableMismatch: it has such commits; the main table was restored alone.
        TimelineUnreadable: see `_completed`.
    """
    if more := sorted(instant for instant in _completed(work) if instant not in main):
        raise _restored_alone(work, more[0])


def require_no_newer(work: Work, main: Timeline, here: Timeline | None = None) -> None:
    """As `require_no_more`, for the quarantine's active timeline alone; call it before each batch.

    Raises:
        ForeignWrite: another client changed the quarantine, and no person accepted it.
    """
    here, name = here or timeline_of(work), work.pipeline.name
    active = {instant.time for instant in main.completed(*CHANGES)}
    accepted = work.ledger.accepted(name)
    for instant in here.completed(*CHANGES):
        if instant.time in active:
            continue
        pipeline, operation = here.extra_metadata(instant).get(PIPELINE_KEY), here.operation(instant)
        if pipeline is None and operation not in SERVICES and str(instant.completion) > accepted:
            require_erasure(work, erasures.QUARANTINE, instant, operation)
        # Archival takes a table's commits in order: none since the oldest active one is archived.
        is_newer = pipeline == name and instant.time >= min(active, default="")
        if is_newer and main.archived(instant.time) is None:
            raise _restored_alone(work, instant.time)


def require_erasure(work: Work, of: str, instant: Instant, operation: str) -> None:
    """Refuses another client's change of the table or its quarantine (`of`), unless a person accepted it as an erasure.

    Args:
        work: the pipeline's.
        of: `erased.TABLE` or `erased.QUARANTINE`.
        instant: the change.
        operation: Hudi's name of it.

    Raises:
        ForeignWrite: no person did.
    """
    if erasures.is_accepted(work.storage, of, instant.time):
        return
    name, uri = work.pipeline.name, (work.storage if of == erasures.TABLE else storage_of(work)).uri
    raise ForeignWrite(
        f"{uri}: pipeline {name} did not write instant {instant.time} ({operation}). Nothing more is written until you "
        "decide: if it only took rows away (retention, erasure) and was meant, run `slshudi table accept-erased "
        f"{name} --reason TEXT`; if it added or changed rows and was meant, `slshudi ledger rebuild {name}` takes the "
        "table as it is; if it was not meant, find out who writes there, and restore the table to before it",
        table=uri,
        instant=instant.time,
        operation=operation,
    )


def _restored_alone(work: Work, instant: str) -> TableMismatch:
    path = storage_of(work).uri
    return TableMismatch(
        f"{path}: the quarantine has completed instant {instant}, but {work.storage.uri} does not have it: a client "
        "restored or replaced that table alone, or it is not mounted. Logs that are read again would be quarantined "
        "twice. Restore both tables to before this instant with Hudi, then run `slshudi ledger rebuild "
        f"{work.pipeline.name}`; later logs are read again",
        table=path,
        instant=instant,
    )


def _completed(work: Work) -> set[str]:
    """The instants of this pipeline's commits in the quarantine, archived ones and those at former places too.

    Raises:
        TimelineUnreadable: the quarantine is gone from a place where it was made.
    """
    instants, name = set[str](), work.pipeline.name
    for storage, timeline in _everywhere(work):
        if not any(timeline):
            quarantine.require_there(work.storage, storage)
        # A former place may have another pipeline's quarantine by now.
        commits = timeline.commits()
        instants |= {instant for instant, _, extra in commits if extra.get(PIPELINE_KEY) == name}
    return instants
