"""Files that the steps of one transaction hand over to each other.

`.hoodie/slshudi/{instant}/` holds the transaction that opened the instant (`owner.json`), the append's order
(`batch-{token}.json`) and manifest (`manifest-{token}.json`), the schema that the table gets (`schema.json`) and the
commit's extra metadata (`commit-{token}.json`). The token in the name keeps an old driver's work apart from its
successor's. Files of the table are in `files` until they are whole. The folder is deleted once its transaction is
decided.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from airflow_provider_slshudi.config.pipeline import Check, Pipeline
from airflow_provider_slshudi.exceptions import ManifestError
from airflow_provider_slshudi.handover.bound import digest_of, read_bound, write_bound
from airflow_provider_slshudi.handover.fencing import ORDER, SUFFIX, folder
from airflow_provider_slshudi.storage.files import Storage

QUARANTINE = "quarantine"
"""The quarantine's key among the tables beside the main one; that of a route's table is ROUTE with its name."""
ROUTE = "route-"
MOST = 200
"""The most keys that a task, and a batch, tells of: those that most logs have."""
EXAMPLES = 3
"""The most values of a key."""


@dataclass(frozen=True)
class Unnamed:
    """What some of a batch's logs have beside the keys that columns name.

    Attributes:
        looked: how many logs were looked at; not all of them are.
        logs: by key, how many of these logs have it.
        examples: by key, the first few values, as text.
    """

    looked: int = 0
    logs: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def total(cls, parts: Iterable[Unnamed]) -> Unnamed:
        """All parts together."""
        looked, logs, examples = 0, Counter[str](), dict[str, list[str]]()
        for part in parts:
            looked += part.looked
            logs.update(part.logs)
            for key, values in part.examples.items():
                examples[key] = list(dict.fromkeys([*examples.get(key, []), *values]))[:EXAMPLES]
        frequent_keys = dict(logs.most_common(MOST))
        return cls(looked, frequent_keys, {key: examples[key] for key in frequent_keys if key in examples})


_MANIFEST = "manifest-"


@dataclass(frozen=True)
class Owner:
    """The transaction that opened an instant; `beside` has the paths of the tables beside, by their keys."""

    transaction: str
    pipeline: str
    token: int
    beside: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Selection:
    """Which quarantined logs to replay: those that match every given field.

    `since` and `until` are log times in unix seconds, half-open.
    """

    transaction: str | None = None
    column: str | None = None
    reason: str | None = None
    since: int | None = None
    until: int | None = None


@dataclass(frozen=True)
class BatchOrder:
    """The work of one append: everything it needs but credentials.

    Attributes:
        pipeline: the pipeline as its model's JSON.
        ranges: the ranges to read, each [shard, begin, end].
        density: each shard's recent raw bytes per log group, by its id as text.
        planned: when the batch was planned, in unix seconds; event times count as late or future against it.
        replay: a `Selection` where quarantined logs are read instead of ranges.
    """

    transaction: str
    token: int
    instant: str
    pipeline: dict[str, Any]
    ranges: list[list[int]]
    density: dict[str, float]
    planned: int = 0
    replay: dict[str, Any] | None = None

    @cached_property
    def described(self) -> Pipeline:
        """The pipeline, validated at its first use."""
        return Pipeline.model_validate(self.pipeline)

    def attempt(self, storage: Storage) -> Attempt:
        """The attempt that this order asks for."""
        return Attempt(storage, self.transaction, self.instant, self.token)


@dataclass(frozen=True)
class RangeDone:
    """What was read of one range: rows, raw bytes, first and last log time (unix seconds, None without logs).

    `rows` are logs that became rows or were put aside; the pipeline's condition leaves out `filtered` more. Of a range
    that is `lost` nothing was read: the service dropped it after it was planned.
    """

    shard: int
    begin: int
    end: int
    rows: int
    bytes: int
    first_time: int | None
    last_time: int | None
    lost: bool = False
    filtered: int = 0


@dataclass(frozen=True)
class CheckResult:
    """The result of one of the pipeline's checks: `found` says why it failed, `warns` that a failure only warns."""

    name: str
    passed: bool
    warns: bool
    found: str

    @classmethod
    def of(cls, check: Check, passed: bool, found: str) -> CheckResult:
        """The result of `check`, which keeps `found` only if it failed."""
        return cls(check.name, passed, check.on_failure == "warn", "" if passed else found)


@dataclass(frozen=True)
class Spent:
    """What an append took.

    Attributes:
        requests: to the log service, repeated ones included; of tasks that ended well.
        driver: CPU seconds of the driver's JVM, with all that runs in it under a local master, and of its Python; None
            where the system does not tell.
        tasks: CPU seconds of the Python of the tasks that ended well.
        waited: the most seconds that a task waited for the limits of reading.
    """

    requests: int
    driver: float | None
    tasks: float
    waited: float = 0.0


@dataclass(frozen=True)
class Manifest:
    """What one append wrote: Hudi's write stats per file, totals per range, misfits per column, seconds taken.

    `checks` are the results of checks on rows.

    Attributes:
        unfit: how many logs do not fit, also those that became rows; each counts once.
        examples: the first few of them, as text.
        quarantine: the write stats of the quarantine's files; None where the batch has no part there.
        taken: replays only, the rows that the quarantine's rewritten files had before.
        left: replays only, how many selected logs still do not fit, by column and reason.
        merged: upserts only, how many rows reached the writing tasks, which make one row of those with one key.
        dropped: upserts only, how many logs had no key and became no row.
        spent: None where nothing is known of it.
        unnamed: keys, and fields of structs' JSON, that no column keeps; none of a replay.
        filter: the conditions by which logs were left out or sorted, as `shaping.conditions.described` tells them; None
            without any.
        routed: the write stats of the files of each route's table, by its key; none of a pipeline without routes.
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
    dropped: int = 0
    spent: Spent | None = None
    unnamed: Unnamed = field(default_factory=Unnamed)
    filter: dict[str, Any] | None = None
    routed: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Rows read."""
        return sum(done.rows for done in self.ranges)

    @property
    def filtered(self) -> int:
        """Logs read that the pipeline's condition leaves out."""
        return sum(done.filtered for done in self.ranges)

    @property
    def partitions(self) -> dict[str, int]:
        """Rows in the files of the table and of routes' tables, by the path of their partition."""
        rows = Counter[str]()
        for stat in [*self.stats, *(stat for stats in self.routed.values() for stat in stats)]:
            rows[str(stat["partitionPath"])] += int(stat["numWrites"])
        return dict(sorted(rows.items()))

    @property
    def quarantined(self) -> int:
        """Rows in the quarantine's files."""
        return rows_of(self.quarantine or [])

    @property
    def beside(self) -> dict[str, list[dict[str, Any]]]:
        """The write stats of each table beside in which the batch has a part, by the table's key."""
        return {**({} if self.quarantine is None else {QUARANTINE: self.quarantine}), **self.routed}

    @property
    def rows_by_route(self) -> dict[str, int]:
        """Rows in the files of each route's table, by its key."""
        return {key: rows_of(stats) for key, stats in self.routed.items()}


@dataclass(frozen=True)
class Attempt:
    """One attempt of a transaction to write an instant, wanted while its order exists; travels to the executors.

    Attributes:
        storage: the table's.
        token: the transaction's fencing token.
    """

    storage: Storage
    transaction: str
    instant: str
    token: int

    def is_wanted(self) -> bool:
        """Whether the order exists: a rollback deletes it first, and without it nothing can be committed."""
        return self.storage.exists(_order_path(self.instant, self.token))

    def require_wanted(self) -> None:
        """Checks that an append is still wanted; for executors, which have no way to the ledger.

        Raises:
            ManifestError: the order is gone; another run decided the transaction meanwhile.
        """
        if not self.is_wanted():
            raise self._withdrawn()

    def order(self, digest: str | None) -> BatchOrder:
        """The order of the append; raises as `require_wanted`, and as `standing_order`."""
        order = self.standing_order(digest)
        if order is None:
            raise self._withdrawn()
        return order

    def standing_order(self, digest: str | None) -> BatchOrder | None:
        """The order of the append, None where it was withdrawn.

        Raises:
            ManifestError: its SHA-256 is not the `digest` that the ledger has.
        """
        path = _order_path(self.instant, self.token)
        content = read_bound(self.storage, path, digest, self.transaction, self.instant)
        return None if content is None else BatchOrder(**json.loads(content))

    def manifest(self) -> tuple[Manifest, str]:
        """The manifest that the append left, and its SHA-256.

        Raises:
            ManifestError: there is none, or it is cut off.
        """
        path = f"{folder(self.instant)}/{_MANIFEST}{self.token}.json"
        content = self.storage.read(path)
        if content is None:
            raise self._error(
                f"{self.storage.uri}: no manifest for instant {self.instant} with token {self.token}: its append did "
                f"not end, be it killed or marked by hand. Nothing of transaction {self.transaction} is committed; the "
                "next run's settle decides it"
            )
        try:
            data = json.loads(content)
        except ValueError as error:
            raise self._error(
                f"{self.storage.uri}: {path} ({len(content)} bytes) is cut off: {error}. Nothing of transaction "
                f"{self.transaction} is committed; the next run's settle decides it"
            ) from error
        ranges = [RangeDone(**done) for done in data.pop("ranges")]
        checks = [CheckResult(**check) for check in data.pop("checks")]
        spent = data.pop("spent", None)
        data["spent"] = None if spent is None else Spent(**spent)
        data["unnamed"] = Unnamed(**data.pop("unnamed", {}))
        return Manifest(ranges=ranges, checks=checks, **data), digest_of(content)

    def leave_extra(self, extra: Mapping[str, str]) -> str:
        """Leaves the commit's extra metadata for the commit's driver; returns its SHA-256."""
        return write_bound(self.storage, self._extra_path, json.dumps(extra).encode())

    def read_extra(self, digest: str) -> dict[str, str]:
        """The commit's extra metadata.

        Raises:
            ManifestError: there is none, or its SHA-256 is another.
        """
        content = self.storage.read(self._extra_path)
        if content is None or digest_of(content) != digest:
            raise self._error(
                f"{self.storage.uri}: {self._extra_path} is not the one that the commit's order names "
                f"({'there is none' if content is None else 'its SHA-256 differs'}); the instant was decided meanwhile"
            )
        extra: dict[str, str] = json.loads(content)
        return extra

    @property
    def _extra_path(self) -> str:
        return f"{folder(self.instant)}/commit-{self.token}.json"

    def _withdrawn(self) -> ManifestError:
        return self._error(
            f"{self.storage.uri}: no order for instant {self.instant} with token {self.token}; it was decided meanwhile"
        )

    def _error(self, text: str) -> ManifestError:
        return ManifestError(text, table=self.storage.uri, transaction=self.transaction, instant=self.instant)


def rows_of(stats: Iterable[Mapping[str, Any]]) -> int:
    """The rows of the files that write stats list."""
    return sum(int(stat["numWrites"]) for stat in stats)


def write_owner(storage: Storage, instant: str, owner: Owner) -> None:
    """Leaves whose instant this is, before it is on the timeline."""
    storage.write(f"{folder(instant)}/owner.json", json.dumps(asdict(owner)).encode())


def read_owner(storage: Storage, instant: str) -> Owner | None:
    """Whose instant this is, None where no transaction of ours opened it."""
    content = storage.read_json(f"{folder(instant)}/owner.json")
    return None if content is None else Owner(**content)


def write_order(storage: Storage, order: BatchOrder) -> str:
    """Leaves the order for the append; returns its SHA-256."""
    return write_bound(storage, _order_path(order.instant, order.token), json.dumps(asdict(order)).encode())


def write_manifest(storage: Storage, manifest: Manifest) -> None:
    """Leaves the manifest: the append's last act. The caller has put what it lists on the disk."""
    storage.write(f"{folder(manifest.instant)}/{_MANIFEST}{manifest.token}.json", json.dumps(asdict(manifest)).encode())


def written(storage: Storage, instant: str) -> dict[str, list[str]]:
    """The files that the instant's manifests list: of the table by an empty key, of tables beside by theirs."""
    files: dict[str, list[str]] = {}
    for name in storage.names(folder(instant)) or []:
        if name.startswith(_MANIFEST) and name.endswith(SUFFIX):
            manifest = storage.read_json(f"{folder(instant)}/{name}") or {}
            parts = {"": manifest.get("stats"), QUARANTINE: manifest.get("quarantine")}
            for key, stats in {**parts, **(manifest.get("routed") or {})}.items():
                files.setdefault(key, []).extend(stat["path"] for stat in stats or ())
    return files


def token_of(storage: Storage, transaction: str, instant: str, digest: str | None) -> int:
    """The token of the append whose manifest has this SHA-256.

    Args:
        storage: the main table's.
        transaction: its id.
        instant: the batch's.
        digest: the manifest's SHA-256, in hexadecimal digits.

    Raises:
        ManifestError: there is none.
    """
    for name in storage.names(folder(instant)) or []:
        if name.startswith(_MANIFEST):
            content = storage.read(f"{folder(instant)}/{name}") or b""
            if digest_of(content) == digest:
                return int(name.removeprefix(_MANIFEST).removesuffix(".json"))
    raise ManifestError(
        f"{storage.uri}/{folder(instant)}: the manifest with SHA-256 {digest} is gone. It listed the files that "
        f"instant {instant} wrote into the quarantine",
        table=storage.uri,
        transaction=transaction,
        instant=instant,
    )


def write_schema(storage: Storage, instant: str, schema: str) -> None:
    """Leaves the schema (Avro) that the table gets, once a batch is sure to be committed."""
    storage.write(f"{folder(instant)}/schema.json", schema.encode())


def read_schema(storage: Storage, instant: str) -> str | None:
    """The schema that a pending instant brings with its commit, None where none was left."""
    content = storage.read(f"{folder(instant)}/schema.json")
    return None if content is None else content.decode()


def _order_path(instant: str, token: int) -> str:
    return f"{folder(instant)}/{ORDER}{token}.json"
