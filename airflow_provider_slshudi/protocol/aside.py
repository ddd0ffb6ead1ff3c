"""What the steps have to know of the quarantine: how far a transaction's part in it is, and when it is too large."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager

from airflow_provider_slshudi.exceptions import ManifestError, TableError, TableMismatch, TooManyMisfits
from airflow_provider_slshudi.hudi import exchange, leftovers, quarantine
from airflow_provider_slshudi.hudi.exchange import Manifest
from airflow_provider_slshudi.hudi.instants import COMMIT_ACTION
from airflow_provider_slshudi.hudi.storage import Storage
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.job.orders import JobOrder, Verb
from airflow_provider_slshudi.ledger.lease import Lease
from airflow_provider_slshudi.ledger.records import Transaction
from airflow_provider_slshudi.protocol.work import Work


def storage_of(work: Work, instant: str | None = None) -> Storage:
    """Where the quarantine is; that which `instant` was opened with, where that is named."""
    owner = exchange.read_owner(work.storage, instant) if instant else None
    return Storage((owner and owner.quarantine) or work.pipeline.quarantine_path)


def timeline_of(work: Work, instant: str | None = None) -> Timeline:
    """The quarantine's timeline; of the quarantine that `instant` was opened with, where that is named.

    Raises:
        TimelineUnreadable: it could not be read; or the quarantine is not where it was made, as when it is not mounted.
    """
    storage = storage_of(work, instant)
    loaded = Timeline.load(storage)
    if not any(loaded):
        quarantine.require_there(work.storage, storage)
    return loaded


@contextmanager
def swept(work: Work, instant: str) -> Iterator[None]:
    """Around the rollback of an instant in both tables, see `leftovers.swept`."""
    with leftovers.swept(work.storage, instant), leftovers.swept(storage_of(work, instant), instant):
        yield


def timelines(work: Work) -> list[tuple[Storage, Timeline]]:
    """The timelines of the table and of its quarantine."""
    storages = work.storage, Storage(work.pipeline.quarantine_path)
    return [(storage, Timeline.load(storage)) for storage in storages]


def is_pending(work: Work, instant: str) -> bool:
    """Whether the quarantine has the instant pending, or half rolled back."""
    return quarantine.is_pending(timeline_of(work, instant), instant)


def is_settled(work: Work, transaction: Transaction) -> bool:
    """Whether the quarantine's part in a transaction is completed as the main instant is, or there is none.

    Raises:
        TableMismatch: there was one, and somebody took it away.
    """
    if (transaction.manifest or {}).get("quarantined") is None:
        return True
    instant, timeline = str(transaction.instant), timeline_of(work, transaction.instant)
    if quarantine.is_completed(timeline, instant):
        return True
    if not quarantine.is_pending(timeline, instant):
        raise quarantine.gone(work.pipeline.quarantine_path, instant)
    return False


def pending(work: Work) -> list[str]:
    """Pending instants of the quarantine, be it at a former place, and those that a rollback took away half-way."""
    found = set[str]()
    for timeline in _all_timelines(work):
        found |= {instant.time for instant in timeline.pending()} | set(timeline.rolling_back)
    return sorted(found)


def _all_timelines(work: Work) -> list[Timeline]:
    """The quarantine's timeline, then those of former places."""
    here = storage_of(work).full("")
    former = [place for place in quarantine.places(work.storage) if place.full("") != here]
    return [timeline_of(work), *map(Timeline.load, former)]


def finish(work: Work, lease: Lease, committed: Mapping[str, str]) -> list[str]:
    """Completes what the quarantine has pending of batches that the main table has; gives their instants.

    `committed` are the main table's, with their transactions.

    Raises:
        TableMismatch: what that takes is not there any more.
    """
    found = [instant for instant in pending(work) if instant in committed]
    for instant in found:
        try:
            order = _order(work, instant, committed[instant])
        except ManifestError as error:
            raise quarantine.gone(work.pipeline.quarantine_path, instant) from error
        work.change(lease, Verb.COMMIT, order)
        if instant in pending(work):
            raise TableError(
                f"{work.pipeline.quarantine_path}: the job ended well, but instant {instant} is still pending",
                table=work.pipeline.quarantine_path,
                instant=instant,
            )
    return found


def _order(work: Work, instant: str, id_: str) -> JobOrder:
    """The order to commit again what the main table has; the quarantine's part is what is left to do."""
    timeline = work.timeline()
    found = timeline.get(instant)
    extra = timeline.extra_metadata(found) if found is not None else {}
    digest = json.loads(extra.get(exchange.QUARANTINE_KEY, "{}")).get("digest")
    token = exchange.token_of(work.storage, id_, instant, digest)
    batch = exchange.read_order(work.storage, id_, instant, token)
    left = exchange.write_extra(work.storage, instant, token, extra)
    return JobOrder(batch.pipeline, id_, token, instant, digest, left)


def require_known(work: Work) -> None:
    """Raises TimelineUnreadable where the quarantine is not where it was made, see `quarantine.require_known`."""
    quarantine.require_known(work.storage, storage_of(work))


def require_whole(work: Work, commits: Iterable[tuple[str, Mapping[str, str]]]) -> None:
    """Holds the quarantine against the main table's commits, each an instant with its extra metadata.

    One that was made anew knows nothing of before.

    Raises:
        TableMismatch: the quarantine lacks a part of one; somebody restored it alone.
    """
    done = _completed(work)
    oldest = min(done, default=None)
    for instant, extra in commits:
        if exchange.QUARANTINE_KEY in extra and oldest is not None and oldest <= instant and instant not in done:
            raise quarantine.gone(work.pipeline.quarantine_path, instant)


def require_no_more(work: Work, main: Container[str]) -> None:
    """Refuses a quarantine that has commits whose instants are not among the main table's.

    Raises:
        TableMismatch: it has; somebody restored the main table alone.
    """
    if more := sorted(instant for instant in _completed(work) if instant not in main):
        path = work.pipeline.quarantine_path
        raise TableMismatch(
            f"{path}: instant {more[0]} is completed here, and {work.storage.uri} does not have it: that table was "
            "restored, and the quarantine was not. What is read again would be put aside a second time. Restore the "
            "quarantine to the same time with Hudi, then run this again",
            table=path,
            instant=more[0],
        )


def _completed(work: Work) -> set[str]:
    """The instants of the quarantine's commits, archived ones too."""
    found = set[str]()
    for timeline in _all_timelines(work):
        found |= {instant.time for instant in timeline.completed(COMMIT_ACTION)}
        found |= {instant for instant, _, _ in timeline.archived_commits()}
    return found


def require_share(transaction: Transaction, manifest: Manifest, share: float | None) -> None:
    """Raises TooManyMisfits where more than this share of a batch's logs do not fit."""
    if share is None or manifest.unfit <= share * manifest.rows:
        return
    columns = ", ".join(f"{name}: {count}" for name, count in sorted(manifest.misfits.items()))
    raise TooManyMisfits(
        f"pipeline {transaction.pipeline}: {manifest.unfit} of {manifest.rows} logs of transaction {transaction.id} do "
        f"not fit their columns ({columns}), and max_misfits allows a share of {share:g}. Nothing is committed. For "
        f"example {'; '.join(manifest.examples)}. Correct the columns, or allow more; the next run reads all again",
        transaction=transaction.id,
        misfits=manifest.unfit,
        logs=manifest.rows,
        share=share,
    )
