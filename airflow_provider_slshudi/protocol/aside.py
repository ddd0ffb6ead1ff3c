"""What the steps have to know of the quarantine: how far a transaction's part in it is, and when it is too large."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow_provider_slshudi.exceptions import TooManyMisfits
from airflow_provider_slshudi.hudi import exchange, leftovers, quarantine
from airflow_provider_slshudi.hudi.exchange import Manifest
from airflow_provider_slshudi.hudi.storage import Storage
from airflow_provider_slshudi.hudi.timeline import Timeline
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
    """The quarantine's pending instants, and those that a rollback took away which did not end."""
    timeline = timeline_of(work)
    return sorted({instant.time for instant in timeline.pending()} | set(timeline.rolling_back))


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
