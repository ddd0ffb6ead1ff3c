"""What the steps of one transaction leave for each other beside the table's timeline.

`.hoodie/slshudi/{instant}/` holds who opened the instant (`owner.json`), what the append is to read
(`batch-{token}.json`), what it wrote (`manifest-{token}.json`), what columns the table has then (`schema.json`) and
what the commit is to say of itself (`commit-{token}.json`). The token in the name keeps an old driver's work apart
from its successor's. The folder goes once its transaction is decided.

`.hoodie/slshudi/claim.json` says which driver may change the table's timeline, `.hoodie/slshudi/quarantine` where the
quarantine is, `.hoodie/slshudi/shards/` where each pipeline's duty for each shard begins.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_provider_slshudi.exceptions import ManifestError, TableError
from airflow_provider_slshudi.hudi.storage import Storage
from airflow_provider_slshudi.ranges import Range

TRANSACTION_KEY = "slshudi.transaction"
RANGES_KEY = "slshudi.ranges"
PIPELINE_KEY = "slshudi.pipeline"
KIND_KEY = "slshudi.kind"
DAG_KEY = "slshudi.dag"
RUN_KEY = "slshudi.run"
QUARANTINE_KEY = "slshudi.quarantine"
"""Where a commit has a part in the quarantine: its rows there, and the SHA-256 of the manifest that lists its files."""
RANGES_NOW_KEY = "slshudi.ranges_now"
"""Where a commit took rows of earlier ones out of the table: what ranges those hold since, by their instants, each
[shard, begin, end, rows, raw bytes]."""

ROOT = ".hoodie/slshudi"
"""Where this package keeps what is its own in a table."""
_CLAIM = f"{ROOT}/claim.json"
_ORDER = "batch-"
_MANIFEST = "manifest-"


def folder(instant: str) -> str:
    """The folder of one instant's files."""
    return f"{ROOT}/{instant}"


@dataclass(frozen=True)
class Owner:
    """Which transaction opened an instant; `quarantine` is where its logs that do not fit go, empty before 0.2."""

    transaction: str
    pipeline: str
    token: int
    quarantine: str = ""


@dataclass(frozen=True)
class Selection:
    """Which quarantined logs are to be replayed: those to which all apply that are given.

    `since` and `until` are log times in unix seconds, half-open.
    """

    transaction: str | None = None
    column: str | None = None
    reason: str | None = None
    since: int | None = None
    until: int | None = None


@dataclass(frozen=True)
class BatchOrder:
    """What one append is to do: everything it needs but credentials.

    Attributes:
        pipeline: the pipeline as its model's JSON.
        ranges: what is to be read, each [shard, begin, end].
        density: raw bytes per log group that each shard showed lately, by its id as text.
        planned: when the batch was planned, in unix seconds; event times are late or from the future by it.
        replay: a `Selection` where quarantined logs are read instead of ranges.
        drop: where rows are taken out of the table instead, the parts of each instant's ranges: [shard, begin, end,
            whether its rows go].
    """

    transaction: str
    token: int
    instant: str
    pipeline: dict[str, Any]
    ranges: list[list[int]]
    density: dict[str, float]
    planned: int = 0
    replay: dict[str, Any] | None = None
    drop: dict[str, list[tuple[int, int, int, bool]]] | None = None


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

    `checks` are those that look at rows.

    Attributes:
        unfit: logs that do not fit, whatever became of them; each once.
        examples: the first few of them, as text.
        quarantine: the write stats of the quarantine's files; None where the quarantine has no part in it.
        taken: replays only, the rows of the quarantine's files that were written anew.
        left: replays only, selected logs that do not fit by now either, by column and reason.
        found: drops only, the rows of each part of each instant's ranges, in the order of `BatchOrder.drop`.
        merged: upserts only, how many rows reached those who wrote; rows of one key become one in the files.
        dropped: upserts only, logs without a key, which are no rows.
    """

    transaction: str
    token: int
    instant: str
    stats: list[dict[str, Any]]
    ranges: list[RangeDone]
    misfits: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    checks: list[CheckResult] = field(default_factory=list)
    unfit: int = 0
    examples: list[str] = field(default_factory=list)
    quarantine: list[dict[str, Any]] | None = None
    taken: int = 0
    left: dict[str, int] = field(default_factory=dict)
    merged: int | None = None
    found: dict[str, list[int]] = field(default_factory=dict)
    dropped: int = 0

    @property
    def rows(self) -> int:
        """Rows read."""
        return sum(done.rows for done in self.ranges)

    @property
    def quarantined(self) -> int:
        """Rows in the quarantine's files."""
        return rows_of(self.quarantine or [])


def rows_of(stats: Iterable[Mapping[str, Any]]) -> int:
    """The rows of the files that write stats list."""
    return sum(int(stat["numWrites"]) for stat in stats)


def ranges_of(extra: Mapping[str, str]) -> Iterator[tuple[Range, int | None, int | None]]:
    """The ranges that a commit's extra metadata tells of, with rows and raw bytes; both are None of a gap."""
    for shard, rows in json.loads(extra[RANGES_KEY]).items():
        for begin, end, count, size in rows:
            yield Range(int(shard), begin, end, gap=count is None), count, size


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
    if not is_ordered(storage, instant, token):
        raise _no_order(storage, transaction, instant, token)


def is_ordered(storage: Storage, instant: str, token: int) -> bool:
    """Whether the instant's order is there; without it there is no commit, and a rollback that began has taken it."""
    return storage.exists(_order_path(instant, token))


def fence(storage: Storage, instant: str) -> None:
    """Withdraws the instant's orders: an append that may still be alive writes no file that stays.

    To be done before its rollback, which deletes what was written until then.
    """
    for name in storage.names(folder(instant)) or []:
        if name.startswith(_ORDER):
            storage.delete(f"{folder(instant)}/{name}")


def claim(storage: Storage, **who: str) -> str:
    """Says that one driver, and no other, may change the table's timeline from now on; gives what it is known by.

    For the holder of the pipeline's lease. A driver of a former holder that is alive, whatever clocks told it, finds
    that the claim is not its own. `who` tells people.
    """
    name = uuid.uuid4().hex
    storage.write(_CLAIM, json.dumps({"claim": name, **who}).encode())
    return name


def require_claim(storage: Storage, name: str, what: str) -> None:
    """Asks whether the timeline may still be changed under a claim; to be asked as late as can be.

    Raises:
        TableError: another driver has claimed it since.
    """
    content = storage.read(_CLAIM)
    found: dict[str, str] = json.loads(content) if content is not None else {}
    if found.get("claim") != name:
        others = ", ".join(f"{key} {value}" for key, value in found.items() if key != "claim") or "nobody"
        raise TableError(
            f"{storage.uri}: this driver may not {what} any more, and did nothing: {_CLAIM} is of another ({others})",
            table=storage.uri,
        )


def write_duties(storage: Storage, pipeline: str, content: str) -> None:
    """Keeps where the pipeline's duty for each shard begins."""
    storage.write(duties_path(pipeline), content.encode())


def read_duties(storage: Storage, pipeline: str) -> bytes | None:
    """What was kept of the pipeline's duties, None where nothing was."""
    return storage.read(duties_path(pipeline))


def duties_path(pipeline: str) -> str:
    """Where the pipeline's duties are kept."""
    return f"{ROOT}/shards/{pipeline}.json"


def write_manifest(storage: Storage, manifest: Manifest) -> None:
    """Leaves the manifest: the append's last act."""
    storage.write(f"{folder(manifest.instant)}/{_MANIFEST}{manifest.token}.json", json.dumps(asdict(manifest)).encode())


def read_manifest(storage: Storage, transaction: str, instant: str, token: int) -> tuple[Manifest, str]:
    """The manifest that an append left under this token, and its SHA-256.

    Raises:
        ManifestError: there is none.
    """
    content = storage.read(f"{folder(instant)}/{_MANIFEST}{token}.json")
    if content is None:
        raise ManifestError(
            f"{storage.uri}: no manifest for instant {instant} with token {token}: its append did not end, be it "
            f"killed or marked by hand. Nothing of transaction {transaction} is committed; the next run's settle "
            "decides it",
            table=storage.uri,
            transaction=transaction,
            instant=instant,
        )
    data = json.loads(content)
    ranges = [RangeDone(**done) for done in data.pop("ranges")]
    checks = [CheckResult(**check) for check in data.pop("checks")]
    return Manifest(ranges=ranges, checks=checks, **data), hashlib.sha256(content).hexdigest()


def token_of(storage: Storage, transaction: str, instant: str, digest: str | None) -> int:
    """The token of the append whose manifest has this SHA-256.

    Raises:
        ManifestError: there is none.
    """
    for name in storage.names(folder(instant)) or []:
        if name.startswith(_MANIFEST):
            content = storage.read(f"{folder(instant)}/{name}") or b""
            if hashlib.sha256(content).hexdigest() == digest:
                return int(name.removeprefix(_MANIFEST).removesuffix(".json"))
    raise ManifestError(
        f"{storage.uri}/{folder(instant)}: the manifest with SHA-256 {digest} is gone, which lists what instant "
        f"{instant} wrote into the quarantine",
        table=storage.uri,
        transaction=transaction,
        instant=instant,
    )


def write_schema(storage: Storage, instant: str, schema: str) -> None:
    """Says, once a batch is sure to be committed, what the table's schema (Avro) is to hold."""
    storage.write(f"{folder(instant)}/schema.json", schema.encode())


def read_schema(storage: Storage, instant: str) -> str | None:
    """The schema that a pending instant is to be committed with, None where it may still be given up."""
    content = storage.read(f"{folder(instant)}/schema.json")
    return None if content is None else content.decode()


def write_extra(storage: Storage, instant: str, token: int, extra: Mapping[str, str]) -> str:
    """Leaves the commit's extra metadata, for the commit's driver; gives its SHA-256."""
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
