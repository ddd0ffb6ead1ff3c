"""Files that the steps of one transaction hand over to each other.

`.hoodie/slshudi/{instant}/` holds the transaction that opened the instant (`owner.json`), the append's order
(`batch-{token}.json`) and manifest (`manifest-{token}.json`), the schema that the table gets (`schema.json`) and the
commit's extra metadata (`commit-{token}.json`). The token in the name keeps an old driver's work apart from its
successor's. Files of the table are in `files` until they are whole. The folder is deleted once its transaction is
decided.
"""

from __future__ import annotations

import errno
import json
import logging
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_provider_slshudi.config.pipeline import Check
from airflow_provider_slshudi.exceptions import ManifestError, TimelineUnreadable
from airflow_provider_slshudi.notes import ROOT
from airflow_provider_slshudi.notes.bound import digest_of, read_bound, write_bound
from airflow_provider_slshudi.notes.unnamed import Unnamed
from airflow_provider_slshudi.storage import Storage

_log = logging.getLogger(__name__)
_ORDER = "batch-"
_MANIFEST = "manifest-"
_FILES = "files"
_SHUT = "shut-"
_NOTE = ".json"
_HELD = {errno.EBUSY, errno.ENOTEMPTY, errno.ETXTBSY}


def folder(instant: str) -> str:
    """The folder of one instant's files."""
    return f"{ROOT}/{instant}"


@dataclass(frozen=True)
class Owner:
    """The transaction that opened an instant; `quarantine` is the path for its misfits, empty where there is none."""

    transaction: str
    pipeline: str
    token: int
    quarantine: str = ""


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

    def claim(self, storage: Storage) -> Claim:
        """The claim that goes with this order."""
        return Claim(storage, self.transaction, self.instant, self.token)


@dataclass(frozen=True)
class RangeDone:
    """What was read of one range: rows, raw bytes, first and last log time (unix seconds, None without rows).

    Of a range that is `lost` nothing was: the service dropped it after it was planned.
    """

    shard: int
    begin: int
    end: int
    rows: int
    bytes: int
    first_time: int | None
    last_time: int | None
    lost: bool = False


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
    """

    requests: int
    driver: float | None
    tasks: float


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

    @property
    def rows(self) -> int:
        """Rows read."""
        return sum(done.rows for done in self.ranges)

    @property
    def quarantined(self) -> int:
        """Rows in the quarantine's files."""
        return rows_of(self.quarantine or [])


@dataclass(frozen=True)
class Claim:
    """A transaction's claim on an instant of the table, which stands while its order exists; travels to the executors.

    Attributes:
        storage: the table's.
        token: the transaction's fencing token.
    """

    storage: Storage
    transaction: str
    instant: str
    token: int

    def is_standing(self) -> bool:
        """Whether the order exists: a rollback deletes it first, and without it nothing can be committed."""
        return self.storage.exists(_order_path(self.instant, self.token))

    def require(self) -> None:
        """Checks that an append is still wanted; for executors, which have no way to the ledger.

        Raises:
            ManifestError: the order is gone; another run decided the transaction meanwhile.
        """
        if not self.is_standing():
            raise self._withdrawn()

    def order(self, digest: str | None) -> BatchOrder:
        """The order of the append; raises as `require`, and as `standing_order`."""
        found = self.standing_order(digest)
        if found is None:
            raise self._withdrawn()
        return found

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
    found = storage.read_json(f"{folder(instant)}/owner.json")
    return None if found is None else Owner(**found)


def write_order(storage: Storage, order: BatchOrder) -> str:
    """Leaves the order for the append; returns its SHA-256."""
    return write_bound(storage, _order_path(order.instant, order.token), json.dumps(asdict(order)).encode())


def admit(storage: Storage, instant: str) -> None:
    """Lets tasks begin and name files of the instant, until `shut`; call it before the instant is on the timeline."""
    if storage.renames:
        storage.make_folder(f"{folder(instant)}/{_FILES}")
    else:
        storage.write(f"{folder(instant)}/{_FILES}", b"open")


def require_admitted(storage: Storage, instant: str, path: str) -> None:
    """Checks that a file of the instant may still get its name; for object stores, right before it gets it.

    The run that shuts the instant ends all uploads after that. So one that began before this check is ended, or gets
    its name before that.

    Raises:
        ManifestError: the instant is shut.
    """
    if not storage.exists(f"{folder(instant)}/{_FILES}"):
        raise shut_error(storage, instant, path)


def shut_error(storage: Storage, instant: str, path: str) -> ManifestError:
    """The error of a task whose file gets no name any more."""
    return ManifestError(
        f"{storage.uri}: {path} is not written: its instant {instant} was decided meanwhile, or its append has ended",
        table=storage.uri,
        transaction="",
        instant=instant,
    )


def nameless(storage: Storage, instant: str, path: str) -> str:
    """Where a task writes a file of the instant before it gets its name, `path`.

    It gets it in one step, which fails once the instant is shut. In an object store that step is the end of an upload,
    which begins under the file's name and is no file before.
    """
    return f"{folder(instant)}/{_FILES}/{path.rpartition('/')[2]}" if storage.renames else path


def shut(storage: Storage, instant: str) -> None:
    """Ends what `admit` began, in one step: no file gets its name any more, also of a task that stood still.

    In an object store that holds for files that begin from now on: who may, ends the uploads that have begun
    (`hudi.client.uploads`). What cannot be deleted yet stays (`delete`): the step is done.
    """
    here = folder(instant)
    if not storage.renames:
        storage.delete(f"{here}/{_FILES}")
        if not storage.names(here):
            # The quarantine has nothing else of an instant. Arrow leaves an object for the folder.
            delete(storage, instant)
        return
    storage.rename(f"{here}/{_FILES}", f"{here}/{_SHUT}{uuid.uuid4().hex}")
    left = storage.names(here)
    # Those of a process that died after the rename, too.
    shut = [name for name in left or [] if name.startswith(_SHUT)]
    if left is not None and len(shut) == len(left):
        # The quarantine has nothing else of an instant.
        delete(storage, instant)
        return
    for name in shut:
        try:
            storage.delete_folder(f"{here}/{name}")
        except TimelineUnreadable as error:
            _log_held(f"{here}/{name}", error)


def fence(storage: Storage, instant: str) -> None:
    """Withdraws the instant's orders and shuts it, so that an append that is still alive leaves no file behind.

    Call it before the rollback, which deletes what was written until then.
    """
    for name in storage.names(folder(instant)) or []:
        if name.startswith(_ORDER):
            storage.delete(f"{folder(instant)}/{name}")
    if storage.is_local and storage.exists(folder(instant)):
        # Else a loss of power may bring an order back, but no file that the rollback deleted.
        storage.sync()
    shut(storage, instant)


def write_manifest(storage: Storage, manifest: Manifest) -> None:
    """Leaves the manifest: the append's last act. The caller has put what it lists on the disk."""
    storage.write(f"{folder(manifest.instant)}/{_MANIFEST}{manifest.token}.json", json.dumps(asdict(manifest)).encode())


def written(storage: Storage, instant: str) -> tuple[list[str], list[str]]:
    """The files that the instant's manifests list: of the table, and of its quarantine."""
    main, aside = list[str](), list[str]()
    for name in storage.names(folder(instant)) or []:
        if name.startswith(_MANIFEST) and name.endswith(_NOTE):
            manifest = storage.read_json(f"{folder(instant)}/{name}") or {}
            main += [stat["path"] for stat in manifest.get("stats") or ()]
            aside += [stat["path"] for stat in manifest.get("quarantine") or ()]
    return main, aside


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


def delete(storage: Storage, instant: str) -> None:
    """Removes the instant's folder.

    A file that a process holds open stays for as long on NFS and FUSE, and its folder with it. It is one of those that
    get no name any more (`shut`), or that no run reads any more; that is no error. No process keeps notes open.
    """
    here = folder(instant)
    try:
        storage.delete_folder(here)
    except TimelineUnreadable as error:
        held = getattr(error.__cause__, "errno", None) in _HELD
        if not held or any(name.endswith(_NOTE) for name in storage.names(here) or []):
            raise
        _log_held(here, error)


def _log_held(path: str, error: TimelineUnreadable) -> None:
    _log.warning("%s stays, since a file in it is in use; delete it once it is not: %s", path, error)


def _order_path(instant: str, token: int) -> str:
    return f"{folder(instant)}/{_ORDER}{token}.json"
