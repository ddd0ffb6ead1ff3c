"""What the steps of one transaction leave for each other beside the table's timeline.

`.hoodie/slshudi/{instant}/` holds who opened the instant (`owner.json`), what the append is to read
(`batch-{token}.json`), what it wrote (`manifest-{token}.json`) and what the commit is to say of itself
(`commit-{token}.json`). The token in the name keeps an old driver's work apart from its successor's. The folder goes
once its transaction is decided.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_provider_slshudi.exceptions import ManifestError
from airflow_provider_slshudi.hudi.storage import Storage

TRANSACTION_KEY = "slshudi.transaction"
RANGES_KEY = "slshudi.ranges"
PIPELINE_KEY = "slshudi.pipeline"
KIND_KEY = "slshudi.kind"
DAG_KEY = "slshudi.dag"
RUN_KEY = "slshudi.run"


_ROOT = ".hoodie/slshudi"
_ORDER = "batch-"


def folder(instant: str) -> str:
    """The folder of one instant's files."""
    return f"{_ROOT}/{instant}"


@dataclass(frozen=True)
class Owner:
    """Which transaction opened an instant."""

    transaction: str
    pipeline: str
    token: int


@dataclass(frozen=True)
class BatchOrder:
    """What one append is to do: everything it needs but credentials.

    Attributes:
        pipeline: the pipeline as its model's JSON.
        ranges: what is to be read, each [shard, begin, end].
        density: raw bytes per log group that each shard showed lately, by its id as text.
    """

    transaction: str
    token: int
    instant: str
    pipeline: dict[str, Any]
    ranges: list[list[int]]
    density: dict[str, float]


@dataclass(frozen=True)
class RangeDone:
    """What was read of one range: rows, raw bytes, first and last log time (unix seconds, None without rows)."""

    shard: int
    begin: int
    end: int
    rows: int
    bytes: int
    first_time: int | None
    last_time: int | None


@dataclass(frozen=True)
class CheckResult:
    """What a check of the pipeline's found: `found` says why where it did not pass, `warns` that this is no failure."""

    name: str
    passed: bool
    warns: bool
    found: str


@dataclass(frozen=True)
class Manifest:
    """What one append wrote: Hudi's write stats per file, totals per range, misfits per column, seconds taken.

    `checks` are those that look at rows. Of an upsert `merged` is how many rows reached those who wrote; files do not
    tell, since rows of one key become one.
    """

    transaction: str
    token: int
    instant: str
    stats: list[dict[str, Any]]
    ranges: list[RangeDone]
    misfits: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    checks: list[CheckResult] = field(default_factory=list)
    merged: int | None = None

    @property
    def rows(self) -> int:
        """Rows read."""
        return sum(done.rows for done in self.ranges)


def write_owner(storage: Storage, instant: str, owner: Owner) -> None:
    """Says whose instant this is, before it is on the timeline."""
    storage.write(f"{folder(instant)}/owner.json", json.dumps(asdict(owner)).encode())


def read_owner(storage: Storage, instant: str) -> Owner | None:
    """Whose instant this is, None where no transaction of ours opened it."""
    content = storage.read(f"{folder(instant)}/owner.json")
    return None if content is None else Owner(**json.loads(content))


def write_order(storage: Storage, order: BatchOrder) -> None:
    """Leaves the order for the append."""
    storage.write(_order_path(order.instant, order.token), json.dumps(asdict(order)).encode())


def read_order(storage: Storage, transaction: str, instant: str, token: int) -> BatchOrder:
    """The order of an append.

    Raises:
        ManifestError: there is none for this token.
    """
    content = storage.read(_order_path(instant, token))
    if content is None:
        raise _no_order(storage, transaction, instant, token)
    return BatchOrder(**json.loads(content))


def require_order(storage: Storage, transaction: str, instant: str, token: int) -> None:
    """Asks whether an append is still wanted; an executor has no way to the ledger to ask there.

    Raises:
        ManifestError: it is not; somebody took the transaction over.
    """
    if not storage.exists(_order_path(instant, token)):
        raise _no_order(storage, transaction, instant, token)


def fence(storage: Storage, instant: str) -> None:
    """Withdraws the instant's orders: an append that may still be alive writes no file that stays.

    To be done before its rollback, which deletes what was written until then.
    """
    for name in storage.names(folder(instant)) or []:
        if name.startswith(_ORDER):
            storage.delete(f"{folder(instant)}/{name}")


def write_manifest(storage: Storage, manifest: Manifest) -> None:
    """Leaves the manifest: the append's last act."""
    storage.write(f"{folder(manifest.instant)}/manifest-{manifest.token}.json", json.dumps(asdict(manifest)).encode())


def read_manifest(storage: Storage, transaction: str, instant: str, token: int) -> tuple[Manifest, str]:
    """The manifest that an append left under this token, and its SHA-256.

    Raises:
        ManifestError: there is none.
    """
    content = storage.read(f"{folder(instant)}/manifest-{token}.json")
    if content is None:
        raise ManifestError(
            f"{storage.uri}: no manifest for instant {instant} with token {token}: its append did not end well",
            table=storage.uri,
            transaction=transaction,
            instant=instant,
        )
    data = json.loads(content)
    ranges = [RangeDone(**done) for done in data.pop("ranges")]
    checks = [CheckResult(**check) for check in data.pop("checks")]
    return Manifest(ranges=ranges, checks=checks, **data), hashlib.sha256(content).hexdigest()


def write_extra(storage: Storage, instant: str, token: int, extra: Mapping[str, str]) -> str:
    """Leaves the commit's extra metadata, which is too long for a command line; gives its SHA-256."""
    content = json.dumps(extra).encode()
    storage.write(_extra_path(instant, token), content)
    return hashlib.sha256(content).hexdigest()


def read_extra(storage: Storage, transaction: str, instant: str, token: int, digest: str) -> dict[str, str]:
    """The commit's extra metadata.

    Raises:
        ManifestError: there is none, or another than the one with this SHA-256.
    """
    content = storage.read(_extra_path(instant, token))
    if content is None or hashlib.sha256(content).hexdigest() != digest:
        raise ManifestError(
            f"{storage.uri}: {_extra_path(instant, token)} is not the one that the commit's order names "
            f"({'there is none' if content is None else 'its SHA-256 differs'}); the instant was decided meanwhile",
            table=storage.uri,
            transaction=transaction,
            instant=instant,
        )
    extra: dict[str, str] = json.loads(content)
    return extra


def delete(storage: Storage, instant: str) -> None:
    """Removes the instant's folder."""
    storage.delete_folder(folder(instant))


def _order_path(instant: str, token: int) -> str:
    return f"{folder(instant)}/{_ORDER}{token}.json"


def _extra_path(instant: str, token: int) -> str:
    return f"{folder(instant)}/commit-{token}.json"


def _no_order(storage: Storage, transaction: str, instant: str, token: int) -> ManifestError:
    return ManifestError(
        f"{storage.uri}: no order for instant {instant} with token {token}; it was decided meanwhile",
        table=storage.uri,
        transaction=transaction,
        instant=instant,
    )
