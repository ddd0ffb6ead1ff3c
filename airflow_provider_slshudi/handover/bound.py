"""Notes that steer a job: their reader knows each one's SHA-256 from the ledger or from the job's order.

Other users may be able to write into the table's folder. What they put in a note's place is never carried out.
"""

from __future__ import annotations

import hashlib

from airflow_provider_slshudi.exceptions import ManifestError
from airflow_provider_slshudi.storage.files import Storage


def write_bound(storage: Storage, path: str, content: bytes) -> str:
    """Writes a note; returns its SHA-256, by which `read_bound` knows it again."""
    storage.write(path, content)
    return digest_of(content)


def read_bound(
    storage: Storage, path: str, digest: str | None, transaction: str = "", instant: str = ""
) -> bytes | None:
    """The note's content, None where there is no note.

    Args:
        storage: the table's.
        path: the note's, within the table.
        digest: the SHA-256 that the ledger or the job's order has for it; None where neither has one.
        transaction: the note's, for the error.
        instant: the note's, for the error.

    Raises:
        ManifestError: the note has another SHA-256, so another process wrote it.
    """
    content = storage.read(path)
    if content is not None and digest_of(content) != digest:
        recorded = f"SHA-256 {digest} was recorded" if digest else "no SHA-256 was recorded for it"
        raise ManifestError(
            f"{storage.uri}: {path} is not the file that was left for this step: its SHA-256 is {digest_of(content)}, "
            f"and {recorded}. Nothing that the file says was carried out. See who may write into the table's folder. "
            "The next run's settle decides an open batch; `slshudi abandon` gives up one that is recorded",
            table=storage.uri,
            transaction=transaction,
            instant=instant,
        )
    return content


def digest_of(content: bytes) -> str:
    """A note's SHA-256."""
    return hashlib.sha256(content).hexdigest()
