"""Tables, ledgers and log services of worlds: copies of templates, each world with all three of its own."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aliyun.log import LogClient, LogItem, PutLogsRequest
from sqlalchemy import Engine, Integer, insert, make_url, select, text, update

from airflow_provider_slshudi.config.pipeline import Batch, Pipeline
from airflow_provider_slshudi.ledger import models
from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.local.process import LocalSls
from airflow_provider_slshudi.local.store import FOREVER
from airflow_provider_slshudi.sls.faults import Patience
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.transaction.context import Run, Work
from tests.crash.cases import BATCH, Step
from tests.databases import new_database, pooled, postgres_server
from tests.exact.step import carry_out
from tests.local.sdk import by_ip
from tests.pipelines import customers, served_often
from tests.scenarios import PROJECT, SessionLauncher, log
from tests.soak.upsert import Changes
from tests.upserts import Change, Key, Model, put
from tests.worlds.draw import DISKS, Drawn, Kind
from tests.worlds.host import AIRFLOW

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGSTORE, OTHER = "worlds", "others"
LOGS = 40
_HISTORY = 4
DAY_SECONDS = 2
"""How long a day of retention lasts; only a logstore whose ttl is set to one day ever loses anything."""
_KEPT = {"compact_after": 2, "keep": {"commits": 1}, "min_commits": 2, "max_commits": 3}
SPLIT_AT = "4" + "0" * 31
SHARDS_OF_KEYS = ("0" * 32, SPLIT_AT)
"""A hash key of each shard that a split at `SPLIT_AT` makes; a row's changes all have the same."""
_GROUP, _LITTLE = 5, 2_000
"""Changes of a log group; raw bytes of a batch, about five of them."""
_DISK = "size=48m,nr_inodes=6k"


@dataclass
class Logs:
    """What was put: events by number and the value of their partition column, or changes of rows in their order."""

    number: int = 0
    cities: dict[str, str] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    excused: set[str] = field(default_factory=set)
    """Events that the service deleted before anybody read them."""


@dataclass
class Line:
    """One world's pipeline."""

    drawn: Drawn
    folder: Path
    pipeline: Pipeline
    server: LocalSls
    spark: SparkSession
    logs: Logs
    rng: random.Random
    model: Model | None = None
    merged: set[str] = field(default_factory=set)
    waiting: list[Change] = field(default_factory=list)
    engines: dict[str, Engine] = field(default_factory=dict)
    pooled: str = ""
    """The URL of a database behind a pooler that has the ledger, where one has."""
    backup: dict[Path, bytes] = field(default_factory=dict)
    """What files had in them before a loss of power cut them."""

    @property
    def file(self) -> str:
        """The ledger's file, as it is copied from the template."""
        return f"sqlite:///{self.folder / 'ledger' / 'ledger.db'}"

    @property
    def url(self) -> str:
        """The ledger's database."""
        return self.pooled or self.file

    @property
    def disk(self) -> Path:
        """What may take no more: the disk of the table or of the ledger."""
        return self.folder / ("ledger" if self.drawn.ledger_disk else "lake")

    @property
    def client(self) -> LogClient:
        """The log service as producers reach it."""
        return by_ip(self.server.connection())

    @property
    def table(self) -> Path:
        """The table's folder."""
        return self.folder / "lake" / self.drawn.folder

    def ledger(self, url: str = "") -> Ledger:
        """The ledger in a database."""
        url = url or self.url
        if url not in self.engines:
            self.engines[url] = open_engine(url)
        return Ledger(self.engines[url])

    def forget(self) -> None:
        """Closes what is open of ledgers."""
        while self.engines:
            self.engines.popitem()[1].dispose()

    def work(self, run: str, url: str = "", **changes: Any) -> Work:
        """The pipeline worked on by a run here, with this process's session."""
        source = self.pipeline.source
        connection = self.server.connection()
        made = Work(
            self.pipeline,
            self.ledger(url or self.url),
            SessionLauncher(self.spark),
            lambda: LogService(connection, source.project, source.logstore, patience=Patience(10)),
            Run("tail", run, AIRFLOW),
        )
        return replace(made, **changes)

    def put(self, count: int = LOGS) -> None:
        """Puts logs that nobody has read yet."""
        if self.drawn.kind.upserts:
            changes = Changes(self.rng, self.drawn.values, _keys(self.drawn)).some(count)
            # Later than all before, so that what is deleted and put again does not depend on a compaction.
            later = max((change.updated_at for change in self.logs.changes), default=0) + 1
            changes = [replace(change, updated_at=change.updated_at + later) for change in changes]
            for hash_key in SHARDS_OF_KEYS:
                mine = [change for change in changes if _shard_of(change) == hash_key]
                for first in range(0, len(mine), _GROUP):
                    put(self.client, self.pipeline, mine[first : first + _GROUP], hash_key=hash_key)
            self.logs.changes += changes
            self.waiting += changes
            return
        for start in range(self.logs.number, self.logs.number + count, 10):
            items = []
            for number in range(start, min(start + 10, self.logs.number + count)):
                contents = dict(log(number))
                if self.drawn.kind is Kind.FIELD:
                    contents["city"] = self.drawn.values[number % len(self.drawn.values)]
                self.logs.cities[contents["event_id"]] = contents["city"]
                items.append(LogItem(1_700_000_000 + number, contents=list(contents.items())))
            self.client.put_logs(PutLogsRequest(PROJECT, LOGSTORE, "ads", "10.0.0.1", items))
        self.logs.number += count

    def put_keyless(self) -> None:
        """Puts a log that no row can be merged by."""
        contents = [(name, value) for name, value in log(0) if name not in ("id", "updated_at")]
        self.client.put_logs(PutLogsRequest(PROJECT, LOGSTORE, "ads", "10.0.0.1", [LogItem(1, contents=contents)]))

    def follow(self) -> None:
        """Lets the model merge what was committed: batches read the one shard in its order, and of several shards all
        that was put has to be read in the end."""
        if self.model is None:
            return
        if not self.drawn.ordered:
            self.model.batch(self.waiting)
            self.waiting = []
            return
        self.waiting = self.model.follow(self.ledger(), self.pipeline.name, self.merged, self.waiting)

    def own(self, uid: int) -> None:
        """Gives all files to a user."""
        for place in (self.folder, *self.folder.rglob("*")):
            os.chown(place, uid, uid, follow_symlinks=False)


def described(kind: Kind, table: Path, ordered: bool = True) -> Pipeline:
    """The pipeline of a kind of worlds; without `ordered`, of two changes of a row that wins which was put later."""
    source = {"project": PROJECT, "logstore": LOGSTORE}
    if kind.upserts:
        type_ = "merge_on_read" if kind is Kind.MERGE else "copy_on_write"
        made = customers(table, type_, source, buckets=2).model_dump(mode="json")
        # Hudi archives nothing that the metadata table has not compacted.
        options = {**made["table"]["options"], "hoodie.metadata.compact.max.delta.commits": "1"}
        if not ordered:
            made["table"]["upsert"] |= {"ordering_field": None}
        return Pipeline.model_validate({**made, "table": {**made["table"], "options": options}, "maintenance": _KEPT})
    made = served_often(table, source=source, misfits="quarantine").model_dump(mode="json")
    if kind is Kind.FIELD:
        made["table"]["partition"] = {"by": "field", "column": "city"}
        made["columns"].append({"name": "city"})
    return Pipeline.model_validate(made)


@dataclass
class _Template:
    """What is known of a template beside its files."""

    folder: Path
    pipeline: Pipeline
    logs: Logs
    merged: set[str]
    rows: dict[Key, dict[str, Any]]


class Places:
    """Makes lines, and the templates that they are copies of when one is first asked for.

    Several processes may share the folder of templates.
    """

    def __init__(self, folder: Path, spark: SparkSession, templates: Path | None = None) -> None:
        self.folder, self.spark = folder, spark
        self._pooler = ExitStack()
        self._pools: tuple[str, str] | None = None
        self._templates = templates or folder / "templates"
        self._templates.mkdir(exist_ok=True)

    @contextmanager
    def line(self, drawn: Drawn) -> Iterator[Line]:
        """A pipeline with a batch committed, or a few; its files are gone after the block."""
        template = self._template(drawn.kind, drawn.history, drawn.ordered)
        folder = self.folder / str(drawn.seed)
        with ExitStack() as stack:
            for name in ("lake", "ledger", "points"):
                (folder / name).mkdir(parents=True)
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            pipeline = described(drawn.kind, folder / "lake" / drawn.folder, drawn.ordered)
            if not drawn.ordered:
                # A backlog takes several batches, so a shard and its children may be read by different ones.
                pipeline = pipeline.model_copy(update={"batch": Batch(max_bytes=_LITTLE)})
            line = self._line(drawn, folder, pipeline)
            if drawn.trouble in DISKS:
                subprocess.run(["mount", "-t", "tmpfs", "-o", _DISK, "none", str(line.disk)], check=True)
                stack.callback(subprocess.run, ["umount", "--lazy", str(line.disk)], check=False)
            line.logs, line.merged = template.logs, template.merged
            if line.model is not None:
                line.model.rows = template.rows
            _copy(template, line)
            if drawn.pooler:
                line.pooled = self._behind_a_pooler(line)
            stack.callback(line.forget)
            stack.enter_context(line.server)
            yield line

    def close(self) -> None:
        """Ends the servers that worlds have shared."""
        self._pooler.close()

    def _behind_a_pooler(self, line: Line) -> str:
        """Copies the ledger into a database of its own behind pgbouncer; gives its URL there."""
        if self._pools is None:
            server = self._pooler.enter_context(postgres_server())
            self._pools = server.url, self._pooler.enter_context(pooled(server))
        name = f"world_{line.drawn.seed}"
        copy_ledger(line.file, new_database(self._pools[0], name))
        line.forget()
        return make_url(self._pools[1]).set(database=name).render_as_string(hide_password=False)

    def _line(self, drawn: Drawn, folder: Path, pipeline: Pipeline) -> Line:
        server = LocalSls(folder / "sls", access_key_secret="worlds", day=DAY_SECONDS)
        model = Model(pipeline.table.upsert) if pipeline.table.upsert is not None else None
        return Line(drawn, folder, pipeline, server, self.spark, Logs(), random.Random(drawn.seed), model)

    def _template(self, kind: Kind, history: bool, ordered: bool) -> _Template:
        folder = self._templates / f"{kind.name}-{history}-{ordered}"
        with folder.with_suffix(".lock").open("w") as lock:
            flock(lock, LOCK_EX)
            saved = folder / "template"
            if not saved.exists():
                made = self._make(kind, history, ordered, folder)
                saved.write_bytes(pickle.dumps(made))
        template = pickle.loads(saved.read_bytes())  # noqa: S301 - written above
        assert isinstance(template, _Template)
        return template

    def _make(self, kind: Kind, history: bool, ordered: bool, folder: Path) -> _Template:
        shutil.rmtree(folder, ignore_errors=True)
        for name in ("lake", "ledger"):
            (folder / name).mkdir(parents=True)
        line = self._line(Drawn(0, kind, Step.PLAN), folder, described(kind, folder / "lake" / "table", ordered))
        migrate(open_engine(line.url))
        with line.server:
            line.client.create_project(PROJECT, "tests")
            for name in (LOGSTORE, OTHER):
                line.client.create_logstore(PROJECT, name, ttl=FOREVER, shard_count=1 if kind.upserts else 2)
            for number in range(_HISTORY if history else 1):
                line.put()
                told = carry_out(line.work(f"run-0-{number}"), [step.value for step in BATCH])
                assert told.ok, told
                line.follow()
        line.forget()
        return _Template(folder, line.pipeline, line.logs, line.merged, line.model.rows if line.model else {})


def copy_ledger(source: str, target: str) -> None:
    """Copies a ledger into an empty database of PostgreSQL."""
    old, new = open_engine(source), open_engine(target)
    migrate(new)
    with old.connect() as found, new.begin() as made:
        for table in models.metadata.sorted_tables:
            if rows := [dict(row._mapping) for row in found.execute(select(table))]:
                made.execute(insert(table), rows)
            for column in table.columns:
                if column.autoincrement is True or (column.primary_key and isinstance(column.type, Integer)):
                    numbers = text("SELECT setval(pg_get_serial_sequence(:name, :column), :last)")
                    last = max((row[column.name] for row in rows), default=0)
                    if (
                        last
                        and made.execute(
                            text("SELECT pg_get_serial_sequence(:name, :column)"),
                            {"name": table.name, "column": column.name},
                        ).scalar()
                    ):
                        made.execute(numbers, {"name": table.name, "column": column.name, "last": last})
    old.dispose()
    new.dispose()


def _copy(template: _Template, line: Line) -> None:
    for made, wanted in (
        (template.pipeline.table.path, line.pipeline.table.path),
        (template.pipeline.quarantine_path, line.pipeline.quarantine_path),
    ):
        place = Path(made.removeprefix("file://"))
        if place.exists():
            shutil.copytree(place, wanted.removeprefix("file://"))
    shutil.copytree(template.folder / "sls", line.folder / "sls", dirs_exist_ok=True)
    for file in (template.folder / "ledger").iterdir():
        shutil.copy(file, line.folder / "ledger")
    line.ledger()
    with line.engines[line.file].begin() as connection:
        connection.execute(update(models.pipelines).values(base_path=line.pipeline.table.path))


def _shard_of(change: Change) -> str:
    """The hash key by which all changes of a row go to one shard, as producers have to that want their order."""
    return SHARDS_OF_KEYS[sum(change.id.encode()) % len(SHARDS_OF_KEYS)]


def _keys(drawn: Drawn) -> tuple[str, ...]:
    """Keys of rows: some that are nasty, too."""
    nasty = tuple(value for value in drawn.values if value.strip())
    return (*nasty, *(f"c{number}" for number in range(40)))
