"""What Hudi's classes do to a table's folder, as measured with Hudi 1.2.0, the unpleasant parts included.

An operation stops where Hudi touches the storage again, so that a process can be paused or die there:

- a commit completes an instant again that is complete, and leaves two files of it;
- a commit on an instant that was rolled back deletes what its markers name before it fails;
- a second move to INFLIGHT fails, one that raced with a rollback leaves an inflight file alone;
- a rollback deletes the files that had markers when it was planned, takes the instant away, and only then completes;
- a rollback that died is carried on with its old plan, also where the instant is gone already.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq

from airflow_provider_slshudi.handover import fencing
from airflow_provider_slshudi.storage.files import Storage

_SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Metadata",
        "fields": [
            {"name": "extraMetadata", "type": {"type": "map", "values": "string"}},
            {"name": "operationType", "type": "string"},
            {"name": "files", "type": {"type": "array", "items": "string"}},
            {"name": "commitsRollback", "type": {"type": "array", "items": "string"}},
        ],
    }
)
_PLAN = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Plan",
        "fields": [
            {
                "name": "instantToRollback",
                "type": {
                    "type": "record",
                    "name": "Info",
                    "fields": [{"name": "commitTime", "type": "string"}, {"name": "action", "type": "string"}],
                },
            },
            {"name": "files", "type": {"type": "array", "items": "string"}},
        ],
    }
)
_MARKER = ".marker.CREATE"


class JavaError(Exception):
    """What Hudi throws."""


class ModelTable:
    """A table on disk. `stop` is called before each change."""

    def __init__(self, base: Path, stop: Callable[[str], None]) -> None:
        self.base, self._stop = base, stop
        self._count = 0
        self._rows: dict[str, frozenset[str]] = {}
        self._listed: dict[str, tuple[dict[str, str], list[str]]] = {}

    # What stands for hudi.client.

    def create_table(self, *_: Any) -> None:
        self._stop("create table")
        (self.base / ".hoodie/timeline").mkdir(parents=True, exist_ok=True)
        (self.base / ".hoodie/hoodie.properties").write_text("hoodie.table.name=model\nhoodie.table.version=9\n")

    def check_table(self, *_: Any) -> None:
        """Every pipeline's table is its own here."""

    def new_instant_time(self, *_: Any) -> str:
        return self._time()

    def request(self, _: Any, __: str, instant: str, *___: Any) -> None:
        fencing.admit(Storage(f"file://{self.base}"), instant)
        self._stop("request")
        self._create(f"{instant}.commit.requested")

    def to_inflight(self, _: Any, __: str, instant: str, ___: str = "") -> None:
        if not self._file(f"{instant}.commit.requested").exists():
            raise JavaError(f"{instant} is not requested")
        self._stop("to inflight")
        self._create(f"{instant}.inflight")

    def commit(
        self,
        _: Any,
        __: Any,
        instant: str,
        stats: Sequence[Mapping[str, Any]],
        extra: Mapping[str, str],
        in_time: Callable[[], None],
    ) -> None:
        files = [str(stat["path"]) for stat in stats]
        in_time()
        self._stop("reconcile")
        for marked in self._marked(instant):
            if marked not in files:
                (self.base / marked).unlink(missing_ok=True)
        self._stop("commit-listed")
        in_time()
        self._stop("commit-looked")
        if not self._file(f"{instant}.inflight").exists():
            raise JavaError(f"{instant} is not inflight")
        record = {"extraMetadata": dict(extra), "operationType": "BULK_INSERT", "files": files, "commitsRollback": []}
        self._create(f"{instant}_{self._time()}.commit", record)
        self._stop("delete markers")
        shutil.rmtree(self._markers(instant), ignore_errors=True)

    def roll_back(self, _: Any, __: Any, instant: str) -> None:
        for _step in self.rolling_back(instant):
            self._stop(_step)

    def rolling_back(self, instant: str) -> Iterator[str]:
        """A rollback, step by step; gives what comes next."""
        yield "plan rollback"
        found = [path.name for path in self._folder.glob("*.rollback.requested")]
        mine = (name.split(".")[0] for name in found if self._planned(name)[0] == instant)
        time = next((time for time in mine if not any(self._folder.glob(f"{time}_*.rollback"))), None)
        if time is None:
            if not any(self._files_of(instant)):
                return
            time = self._time()
            files = [*self._marked(instant), *self._files_listed(instant)]
            plan = {"instantToRollback": {"commitTime": instant, "action": "commit"}, "files": files}
            self._create(f"{time}.rollback.requested", plan, _PLAN)
        yield "execute rollback"
        with suppress(JavaError):
            self._create(f"{time}.rollback.inflight")
        for path in self._planned(f"{time}.rollback.requested")[1]:
            (self.base / path).unlink(missing_ok=True)
        for file in self._files_of(instant):
            yield "delete instant"
            file.unlink(missing_ok=True)
        yield "complete rollback"
        if not any(self._folder.glob(f"{time}_*.rollback")):
            record = {"extraMetadata": {}, "operationType": "UNKNOWN", "files": [], "commitsRollback": [instant]}
            self._create(f"{time}_{self._time()}.rollback", record)
        shutil.rmtree(self._markers(instant), ignore_errors=True)

    # What readers see.

    def commits(self) -> list[tuple[str, dict[str, str], list[str]]]:
        """(instant, extra metadata, files) of each completed commit's file."""
        found = []
        for path in sorted(self._folder.glob("*_*.commit")):
            if path.name not in self._listed:
                record = self._read(path.name)
                self._listed[path.name] = record["extraMetadata"], record["files"]
            found.append((path.name.split("_")[0], *self._listed[path.name]))
        return found

    def rows(self, path: str) -> frozenset[str] | None:
        """The row keys in a file, None where there is no such file."""
        if not (self.base / path).exists():
            return None
        if path not in self._rows:
            keys = pq.read_table(self.base / path, columns=["_hoodie_record_key"])["_hoodie_record_key"].to_pylist()
            if len(set(keys)) != len(keys):
                raise AssertionError(f"{path} has a row twice")
            self._rows[path] = frozenset(keys)
        return self._rows[path]

    def base_files(self) -> list[str]:
        return sorted(path.name for path in self.base.glob("*.parquet"))

    def pending(self) -> list[str]:
        """Instants that are not complete, of all actions."""
        names = {path.name for path in self._folder.glob("*")}
        complete = {name.split("_")[0] for name in names if "_" in name}
        return sorted({name.split(".")[0] for name in names if "_" not in name} - complete)

    def pending_commits(self) -> list[str]:
        """Those of them that are no rollbacks."""
        return [instant for instant in self.pending() if any(self._files_of(instant))]

    @property
    def _folder(self) -> Path:
        return self.base / ".hoodie/timeline"

    def _markers(self, instant: str) -> Path:
        return self.base / ".hoodie/.temp" / instant

    def _marked(self, instant: str) -> list[str]:
        return sorted(path.name.removesuffix(_MARKER) for path in self._markers(instant).glob(f"*{_MARKER}"))

    def _files_listed(self, instant: str) -> list[str]:
        return [file for time, _, files in self.commits() if time == instant for file in files]

    def _files_of(self, instant: str) -> list[Path]:
        """Completed first, requested last."""
        names = [f"{instant}.inflight", f"{instant}.commit.requested"]
        pending = [self._file(name) for name in names if self._file(name).exists()]
        return [*self._folder.glob(f"{instant}_*.commit"), *pending]

    def _planned(self, name: str) -> tuple[str, list[str]]:
        record = self._read(name)
        return record["instantToRollback"]["commitTime"], record["files"]

    def _file(self, name: str) -> Path:
        return self._folder / name

    def _time(self) -> str:
        self._count += 1
        return f"{20260101000000000 + self._count}"

    def _create(self, name: str, record: Mapping[str, Any] | None = None, schema: Any = _SCHEMA) -> None:
        content = io.BytesIO()
        if record is not None:
            fastavro.writer(content, schema, [record])
        try:
            with self._file(name).open("xb") as file:
                file.write(content.getvalue())
        except FileExistsError:
            raise JavaError(f"{name} is there already") from None

    def _read(self, name: str) -> dict[str, Any]:
        with self._file(name).open("rb") as file:
            record = next(iter(fastavro.reader(file)))
        assert isinstance(record, dict)
        return record
