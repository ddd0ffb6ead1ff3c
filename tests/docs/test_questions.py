"""The answers of docs/questions.md: the page's own commands and queries, on a real table."""

from __future__ import annotations

import json
import shlex
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from airflow_provider_slshudi import cli
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import ForeignWrite, LedgerAhead, LedgerLost, PipelineConflict
from airflow_provider_slshudi.hooks.ledger import LedgerHook
from airflow_provider_slshudi.services import metadata
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.spark.pins import HUDI_PACKAGE, S3_PACKAGE
from airflow_provider_slshudi.spark.runtime import session_conf
from airflow_provider_slshudi.transaction import steps
from airflow_provider_slshudi.transaction.evidence import require_agreement
from airflow_provider_slshudi.transaction.settle import register
from tests.docs.blocks import blocks
from tests.machine import ROOT, connection
from tests.mirror.conftest import TABLE, Mirrored, mirrored  # noqa: F401
from tests.readers.trinoserver import _catalogs
from tests.scenarios import Scenario

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = ROOT / "docs" / "questions.md"
PATH, INSTANT = "s3a://my-bucket/lake/clicks", "20260131010000000"
COLUMNS = [
    {"name": "clicked_at", "type": "timestamp", "format": "millis", "key": "ts"},
    {"name": "user_id", "key": "event_id"},
]
PARTITION = {"by": "event_time", "column": "clicked_at"}


def answer(heading: str, language: str) -> list[str]:
    """The blocks of one answer."""
    found = [block.text for block in blocks(PAGE) if block.heading.startswith(heading) and block.language == language]
    assert found, f"{PAGE.name} has no {language} under {heading!r}"
    return found


@dataclass
class Clicks:
    """The page's pipeline, made small, and the ways to it that the page shows."""

    scenario: Scenario
    spark: SparkSession
    printed: pytest.CaptureFixture[str]

    def slshudi(self, command: str, **others: str) -> str:
        """Runs a command of the page; gives what it printed."""
        for old, new in others.items():
            command = command.replace(old, new)
        self.printed.readouterr()
        code = cli.main(shlex.split(command)[1:])
        said = self.printed.readouterr()
        assert code == 0, said
        return said.out

    def sql(self, text: str, **others: str) -> list[Any]:
        """Runs the statements of a block, in a session as the page begins one; gives the rows of the last."""
        text = f"{answer('Questions', 'sql')[0]};{text}".replace(PATH, self.scenario.work.storage.uri)
        for old, new in others.items():
            text = text.replace(old, new)
        session = self.spark.newSession()
        try:
            return [session.sql(statement) for statement in text.split(";")][-1].collect()
        finally:
            for table in ("clicks", "clicks_quarantine"):
                session.sql(f"drop table if exists {table}")

    def python(self, code: str, since: str = "") -> dict[str, Any]:
        """Runs a block of Python; gives its variables."""
        names: dict[str, Any] = {"spark": self.spark}
        exec(code.replace(PATH, self.scenario.work.storage.uri).replace(INSTANT, since), names)  # noqa: S102
        return names

    def changed(self, **fields: Any) -> Scenario:
        """The scenario with other fields in the pipeline's file."""
        described = {**self.scenario.work.pipeline.model_dump(mode="json"), **fields}
        return replace(self.scenario, work=replace(self.scenario.work, pipeline=Pipeline.model_validate(described)))

    @property
    def table(self) -> dict[str, Any]:
        """The field `table` of the pipeline's file."""
        described: dict[str, Any] = self.scenario.work.pipeline.table.model_dump(mode="json")
        return described


@pytest.fixture
def make_clicks(
    spark: SparkSession,
    scenario: Callable[..., Scenario],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., Clicks]:
    """Two shards and a committed batch of forty logs; the arguments are fields of the pipeline's file."""

    def make(**fields: Any) -> Clicks:
        monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
        monkeypatch.setenv("AIRFLOW__LOGGING__LOGGING_LEVEL", "WARNING")
        ledger = connection("slshudi_ledger", schema=str(tmp_path / "ledger.db"), extra={"dialect": "sqlite"})
        monkeypatch.setenv("AIRFLOW_CONN_SLSHUDI_LEDGER", ledger)
        table = {"path": f"file://{tmp_path}/lake/clicks", "name": "clicks", "partition": PARTITION}
        made = Clicks(scenario(**{"name": "clicks", "table": table, "columns": COLUMNS, **fields}), spark, capsys)
        for command in (cli.backfill, cli.ledger, cli.repair, cli.reports, cli.table):
            monkeypatch.setattr(command, "work_of", lambda name: made.scenario.by(f"by-hand-{time.monotonic_ns()}"))
        made.scenario.put(40)
        made.scenario.batch("run-1")
        return made

    return make


@pytest.fixture
def clicks(make_clicks: Callable[..., Clicks]) -> Clicks:
    """The pipeline without a quarantine."""
    return make_clicks()


@pytest.fixture
def quarantining(make_clicks: Callable[..., Clicks]) -> Clicks:
    """The pipeline with a quarantine, which one log in ten goes to."""
    return make_clicks(misfits="quarantine", columns=[*COLUMNS, {"name": "clicks", "type": "bigint"}])


def test_the_session_of_the_page_is_one_as_the_package_has_it() -> None:
    words = shlex.split(answer("Questions", "shell")[0])
    settings = dict(word.split("=", 1) for word in words if word.startswith("spark."))
    assert len(settings) == 4 and settings.items() <= session_conf("local[2]").items()
    assert HUDI_PACKAGE in words and S3_PACKAGE in PAGE.read_text(encoding="utf-8")


def test_an_hour_is_complete_once_nothing_of_it_is_unread(clicks: Clicks) -> None:
    partitions, lag, hour, *_ = answer("Is nine", "shell")
    assert "declares no `table.partition.lateness`" in clicks.slshudi(partitions)
    now = datetime.now(timezone.utc).replace(microsecond=0)
    span = {
        "2026-01-31T08:00:00+08:00": (now - timedelta(minutes=30)).isoformat(),
        "2026-01-31T09:00:00+08:00": (now + timedelta(minutes=30)).isoformat(),
    }
    assert "nothing is left to read" in clicks.slshudi(hour, **span)
    assert "OK" in clicks.slshudi(answer("How am I told", "shell")[0])
    before = json.loads(clicks.slshudi(f"{lag} --json"))["shards"]
    assert [shard["unread"] for shard in before] == [0, 0]
    clicks.scenario.put(20, first=40)
    assert "2 log groups" in clicks.slshudi(hour, **span)
    after = json.loads(clicks.slshudi(f"{lag} --json"))["shards"]
    assert sum(shard["unread"] for shard in after) == 2 and all(shard["seconds"] < 1800 for shard in after)
    hours = clicks.sql(answer("Is nine", "sql")[0], **{"2026-01-31": "2026-01-01"})
    assert [row["rows"] for row in hours] == [6] * 6 + [4]
    assert {row["newest_batch"] for row in hours} == {clicks.scenario.work.ledger.last("clicks", 1)[0].instant}


def test_the_rows_of_a_shard_in_a_run(clicks: Clicks) -> None:
    clicks.scenario.put(20, first=40)
    second = clicks.scenario.batch("run-2")
    assert second.instant and second.instant in clicks.slshudi(answer("Which rows did one shard", "shell")[0])
    each, counted, _ = answer("Which rows did one shard", "sql")
    rows = clicks.sql(counted, **{INSTANT: second.instant})
    ranges = {item.range.shard: item.rows for item in clicks.scenario.work.ledger.totals(second.id)}
    assert {int(row["shard"]): row["rows"] for row in rows} == ranges
    for shard, number in ranges.items():
        assert len(clicks.sql(each, **{INSTANT: second.instant, "3-%": f"{shard}-%"})) == number


def test_the_quarantined_logs_of_a_shard_in_a_run(quarantining: Clicks) -> None:
    [batch] = quarantining.scenario.work.ledger.last("clicks", 1)
    query = answer("Which rows did one shard", "sql")[2]
    logs = [
        log for shard in (0, 1) for log in quarantining.sql(query, **{"'ID'": f"'{batch.id}'", "= 3": f"= {shard}"})
    ]
    assert sorted(log["log_index"] for log in logs) == [0] * 4, "the first log of each log group"


def test_only_new_commits_by_spark_and_by_hudi_rs(clicks: Clicks) -> None:
    first = clicks.scenario.work.ledger.last("clicks", 1)[0]
    clicks.scenario.put(30, first=40)
    clicks.scenario.batch("run-2")
    by_spark, by_rust, *_ = answer("How do I read only new", "python")
    assert first.completed is not None
    assert clicks.python(by_spark, first.completed)["new"].count() == 30
    rust = clicks.python(by_rust, first.completed)["batches"]
    assert pa.Table.from_batches(rust).num_rows == 30


def test_only_new_commits_of_an_iceberg_mirror(
    mirrored: Callable[..., Mirrored],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pyiceberg = pytest.importorskip("pyiceberg.catalog")
    mirror = mirrored()
    [first] = mirror.made.append([{"n": 1, "day": "a"}])
    mirror.follow()
    mirror.made.append([{"n": 2, "day": "a"}], [{"n": 3, "day": "b"}])
    mirror.follow()

    def read() -> list[int]:
        """What the page's block reads behind the last snapshot but one, in the test's catalog."""
        names: dict[str, Any] = {}
        with monkeypatch.context() as patch:
            patch.setattr(pyiceberg, "load_catalog", lambda _, load=pyiceberg.load_catalog: _Lake(mirror, load))
            exec(answer("How do I read only new", "python")[2], names)  # noqa: S102
        return sorted(names["rows"]["n"].to_pylist())

    assert read() == [2, 3]
    mirror.made.cluster([first], [{"n": 1, "day": "a"}])
    mirror.follow()
    assert read() == [], "a clustering's rows are no new ones"


@dataclass
class _Lake:
    """The test's catalog and its table, by whatever names a page calls them."""

    mirror: Mirrored
    load: Callable[..., Any]

    def load_table(self, _: str) -> Any:
        return self.load(**self.mirror.catalog).load_table(TABLE)

    def drop_table(self, _: str) -> None:
        self.load(**self.mirror.catalog).drop_table(TABLE)


def test_a_table_and_its_quarantine_move_to_another_place(quarantining: Clicks, tmp_path: Path) -> None:
    clicks = quarantining
    gone, rebuild, *_ = answer("How do I move", "shell")
    lake, place = tmp_path / "lake", tmp_path / "another-bucket"
    moved = clicks.changed(table={**clicks.table, "path": f"file://{place}/clicks"})
    with pytest.raises(PipelineConflict):
        register(moved.work)
    shutil.copytree(lake, place)
    note = place / "clicks" / ".hoodie" / "slshudi" / "quarantine"
    note.write_text(note.read_text().replace(str(lake), str(place)))
    lake.rename(tmp_path / "aside")
    clicks.slshudi(gone)
    clicks.scenario = moved
    clicks.slshudi(rebuild)
    clicks.scenario.put(20, first=40)
    assert clicks.scenario.batch("run-2").rows == 20
    proof = verify(clicks.scenario.work, source=True)
    assert proof.ok and (proof.rows, proof.totals.quarantined) == (60, 6)


def test_mirrors_of_a_table_that_moved(
    mirrored: Callable[..., Mirrored],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pyiceberg = pytest.importorskip("pyiceberg.catalog")
    mirror = mirrored()
    mirror.made.append([{"n": 1, "day": "a"}])
    mirror.follow()
    old, new = Path(mirror.made.storage.full("")), tmp_path / "another-bucket" / "events"
    shutil.copytree(old, new)
    old.rename(tmp_path / "aside")
    described = mirror.work.pipeline.model_dump(mode="json")
    described["table"]["path"] = f"file://{new}"
    mirror.work = replace(mirror.work, pipeline=Pipeline.model_validate(described))
    mirror.follow()
    [snippet] = answer("How do I read it from Trino", "python")
    names: dict[str, Any] = {}
    exec(snippet.replace(PATH, str(new)), names)  # noqa: S102
    assert names["rows"] == [(1,)], "the Delta mirror came along"
    with pytest.raises(FileNotFoundError, match=str(old)):
        mirror.iceberg.scan().to_arrow()
    with monkeypatch.context() as patch:
        patch.setattr(pyiceberg, "load_catalog", lambda _, load=pyiceberg.load_catalog: _Lake(mirror, load))
        exec(answer("How do I move", "python")[0], {})  # noqa: S102
    mirror.follow()
    assert mirror.iceberg.scan().to_arrow()["n"].to_pylist() == [1]
    assert mirror.iceberg.location() == f"file://{new}_iceberg"


def test_trino_has_the_catalogs_of_the_page(tmp_path: Path) -> None:
    known = _catalogs(tmp_path, "jdbc:postgresql://db/lake", "thrift://metastore:9083")
    for text in answer("How do I read it from Trino", "properties"):
        lines = [line.split("=", 1) for line in text.splitlines() if not line.startswith("#")]
        told = dict(lines)
        of_run = known[told["connector.name"]]
        assert told.keys() <= of_run.keys() and {"fs.hadoop.enabled", "connector.name"} <= told.keys()
        places = {"connection-user", "connection-password", "default-warehouse-dir", "catalog-name"}
        assert all(of_run[key] == value for key, value in lines if key.rpartition(".")[2] not in places)


def test_a_persons_rows_are_deleted_and_not_read_again(quarantining: Clicks) -> None:
    clicks, main, aside = quarantining, *answer("How do I delete", "sql")
    waiting = clicks.scenario.prepare_next(40)
    both = main.replace("4711", "event-3"), aside.replace("4711", "event-10").replace("'user_id'", "'event_id'")
    clicks.sql(";".join(both))
    assert waiting.instant in [instant.time for instant in clicks.scenario.work.timeline().pending()]
    with pytest.raises(ForeignWrite):
        require_agreement(clicks.scenario.work)
    clicks.slshudi(answer("How do I delete", "shell")[0])
    steps.commit(clicks.scenario.by("run-waiting-40"), waiting.id, waiting.token)
    proof = verify(clicks.scenario.work, source=True)
    assert proof.ok and (proof.rows, proof.totals.to_dict()["erased"]) == (48, 2)
    assert "nothing is left to read" in clicks.slshudi(answer("How do I backfill", "shell")[0])


@pytest.mark.parametrize("waits", [0, 1])
def test_a_deletion_from_a_table_of_version_6_wants_no_batch_under_way(
    make_clicks: Callable[..., Clicks], tmp_path: Path, waits: int
) -> None:
    table = {"path": f"file://{tmp_path}/lake/clicks", "name": "clicks", "partition": PARTITION, "version": 6}
    clicks = make_clicks(table=table)
    if waits:
        clicks.scenario.prepare_next(40)
    deletion = answer("How do I delete", "sql")[0].replace("4711", "event-3")
    clicks.sql(f"SET hoodie.write.table.version=6;{deletion}")
    clicks.slshudi(answer("How do I delete", "shell")[0])
    found, _ = metadata.rebuild_metadata(clicks.scenario.by("mend"), only_damaged=True)
    assert found.lacking == waits and metadata.check_metadata(clicks.scenario.by("check")).ok
    assert [row["n"] for row in clicks.sql("SELECT count(*) AS n FROM clicks")] == [39]


def test_by_hudis_defaults_a_deletion_rolls_back_a_batch_under_way(clicks: Clicks) -> None:
    waiting = clicks.scenario.prepare_next(40)
    clicks.sql("DELETE FROM clicks WHERE user_id = 'event-3'")
    assert waiting.instant not in [instant.time for instant in clicks.scenario.work.timeline().pending()]


def test_a_lost_ledger_is_made_anew(clicks: Clicks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = connection("slshudi_ledger", schema=str(tmp_path / "new.db"), extra={"dialect": "sqlite"})
    monkeypatch.setenv("AIRFLOW_CONN_SLSHUDI_LEDGER", empty)
    assert "No pipeline has run yet" in clicks.slshudi("slshudi status")
    clicks.scenario = replace(clicks.scenario, work=replace(clicks.scenario.work, ledger=LedgerHook().ledger()))
    with pytest.raises(LedgerLost):
        require_agreement(clicks.scenario.work)
    clicks.slshudi(answer("I lost the ledger", "shell")[0])
    assert clicks.slshudi(answer("Is every log in the table", "shell")[0]).startswith("clicks as of")
    assert clicks.scenario.work.ledger.last("clicks", 1)[0].rows == 40


def test_a_second_pipeline_reads_the_same_logs_again(clicks: Clicks, tmp_path: Path) -> None:
    table = {**clicks.table, "path": f"file://{tmp_path}/lake/clicks_2", "name": "clicks_2"}
    again = clicks.changed(name="clicks_2", table=table)
    register(again.work)
    assert again.batch("run-1").rows == 40


def test_a_table_that_was_restored_to_before_a_mistake_in_the_file_has_its_logs_read_again(
    clicks: Clicks, tmp_path: Path
) -> None:
    lake, backup = tmp_path / "lake", tmp_path / "backup"
    shutil.copytree(lake, backup)
    clicks.scenario.put(20, first=40)
    wrong = {"name": "place", "key": "town"}
    clicks.scenario = clicks.changed(columns=[*COLUMNS, wrong])
    clicks.scenario.batch("run-2")
    assert [row["n"] for row in clicks.sql("SELECT count(place) AS n FROM clicks")] == [0]
    shutil.rmtree(lake)
    backup.rename(lake)
    with pytest.raises(LedgerAhead):
        require_agreement(clicks.scenario.work)
    clicks.scenario = clicks.changed(columns=[*COLUMNS, {**wrong, "key": "city"}])
    clicks.slshudi(answer("A mistake in the file", "shell")[1])
    assert clicks.scenario.batch("run-3").rows == 20
    assert [row["n"] for row in clicks.sql("SELECT count(place) AS n FROM clicks")] == [20]
    assert verify(clicks.scenario.work, source=True).ok


def test_a_dag_on_the_tables_asset_reads_each_row_once(clicks: Clicks) -> None:
    scenario, names = clicks.scenario, clicks.python(answer("How do I read only new", "python")[3])
    read = names["dag"].get_task("read_new").python_callable
    read()
    waiting = scenario.prepare_next(40)
    later = scenario.prepare_next(50)
    for batch in (later, waiting):
        steps.commit(scenario.by(batch.run_id), batch.id, batch.token)
        read()
    read()
    rows = clicks.spark.read.parquet(f"{scenario.work.storage.uri}_copy").select("user_id").collect()
    assert sorted(row["user_id"] for row in rows) == sorted(f"event-{number}" for number in range(60))
