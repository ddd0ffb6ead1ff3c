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
from airflow_provider_slshudi.exceptions import ForeignWrite, PipelineConflict
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.transaction.evidence import require_agreement
from airflow_provider_slshudi.transaction.settle import register
from tests.docs.blocks import blocks
from tests.machine import ROOT, connection
from tests.mirror.conftest import TABLE, Mirrored, mirrored  # noqa: F401
from tests.scenarios import Scenario

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = ROOT / "docs" / "questions.md"
PATH, INSTANT = "s3a://my-bucket/lake/clicks", "20260131010000000"
COLUMNS = [
    {"name": "event_time", "type": "timestamp", "format": "millis", "key": "ts"},
    {"name": "user_id", "key": "event_id"},
]


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

    def sql(self, statement: str, **others: str) -> list[Any]:
        """Runs a query of the page."""
        for old, new in others.items():
            statement = statement.replace(old, new)
        self.spark.sql(f"create table if not exists clicks using hudi location '{self.scenario.work.storage.uri}'")
        try:
            return self.spark.sql(statement).collect()
        finally:
            self.spark.sql("drop table clicks")

    def python(self, code: str, since: str) -> dict[str, Any]:
        """Runs a block of Python; gives its variables."""
        names: dict[str, Any] = {"spark": self.spark}
        exec(code.replace(PATH, self.scenario.work.storage.uri).replace(INSTANT, since), names)  # noqa: S102
        return names


@pytest.fixture
def clicks(
    spark: SparkSession,
    scenario: Callable[..., Scenario],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Clicks:
    """Two shards and a committed batch of forty logs."""
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
    monkeypatch.setenv("AIRFLOW__LOGGING__LOGGING_LEVEL", "WARNING")
    ledger = connection("slshudi_ledger", schema=str(tmp_path / "ledger.db"), extra={"dialect": "sqlite"})
    monkeypatch.setenv("AIRFLOW_CONN_SLSHUDI_LEDGER", ledger)
    made = Clicks(scenario(name="clicks", columns=COLUMNS), spark, capsys)
    for command in (cli.backfill, cli.ledger, cli.repair, cli.reports, cli.table):
        monkeypatch.setattr(command, "work_of", lambda name: made.scenario.by(f"by-hand-{time.monotonic_ns()}"))
    made.scenario.put(40)
    made.scenario.batch("run-1")
    return made


def test_an_hour_is_complete_once_nothing_of_it_is_unread(clicks: Clicks) -> None:
    lag, hour, *_ = answer("Is nine", "shell")
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
    [row] = {hours["newest_batch"] for hours in clicks.sql(answer("Is nine", "sql")[0])}
    assert row == clicks.scenario.work.ledger.last("clicks", 1)[0].instant


def test_the_rows_of_a_shard_in_a_run(clicks: Clicks) -> None:
    clicks.scenario.put(20, first=40)
    second = clicks.scenario.batch("run-2")
    assert second.instant and second.instant in clicks.slshudi(answer("Which rows did one shard", "shell")[0])
    rows = clicks.sql(answer("Which rows did one shard", "sql")[0], **{INSTANT: second.instant})
    ranges = clicks.scenario.work.ledger.totals(second.id)
    assert {int(row["shard"]): row["rows"] for row in rows} == {item.range.shard: item.rows for item in ranges}


def test_only_new_commits_by_spark_and_by_hudi_rs(clicks: Clicks) -> None:
    first = clicks.scenario.work.ledger.last("clicks", 1)[0]
    clicks.scenario.put(30, first=40)
    clicks.scenario.batch("run-2")
    by_spark, by_rust, _ = answer("How do I read only new", "python")
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


def test_a_table_moves_to_another_place(clicks: Clicks, tmp_path: Path) -> None:
    scenario = clicks.scenario
    gone, rebuild, *_ = answer("How do I move", "shell")
    old, new = Path(scenario.work.storage.full("")), tmp_path / "another-bucket" / "clicks"
    moved = Pipeline.model_validate(
        {
            **scenario.work.pipeline.model_dump(mode="json"),
            "table": {**scenario.work.pipeline.table.model_dump(mode="json"), "path": f"file://{new}"},
        }
    )
    with pytest.raises(PipelineConflict):
        register(replace(scenario.work, pipeline=moved))
    shutil.copytree(old, new)
    old.rename(tmp_path / "aside")
    clicks.slshudi(gone)
    clicks.scenario = replace(scenario, work=replace(scenario.work, pipeline=moved))
    clicks.slshudi(rebuild)
    clicks.scenario.put(20, first=40)
    assert clicks.scenario.batch("run-2").rows == 20
    proof = verify(clicks.scenario.work, source=True)
    assert proof.ok and proof.rows == 60


def test_a_persons_rows_are_deleted_and_not_read_again(clicks: Clicks) -> None:
    clicks.sql(answer("How do I delete", "sql")[0], **{"4711": "event-3"})
    with pytest.raises(ForeignWrite):
        require_agreement(clicks.scenario.work)
    clicks.slshudi(answer("How do I delete", "shell")[0])
    proof = verify(clicks.scenario.work, source=True)
    assert proof.ok and proof.totals.to_dict()["erased"] == 1
    assert "nothing is left to read" in clicks.slshudi(answer("How do I backfill", "shell")[0])


def test_a_lost_ledger_is_made_anew(clicks: Clicks) -> None:
    clicks.slshudi(answer("I lost the ledger", "shell")[0])
    assert clicks.slshudi(answer("Is every log in the table", "shell")[0]).startswith("clicks as of")
    assert clicks.scenario.work.ledger.last("clicks", 1)[0].rows == 40


def test_a_second_pipeline_reads_the_same_logs_again(clicks: Clicks, tmp_path: Path) -> None:
    scenario = clicks.scenario
    described = scenario.work.pipeline.model_dump(mode="json")
    described |= {"name": "clicks_2", "table": {**described["table"], "path": f"file://{tmp_path}/lake/clicks_2"}}
    again = replace(scenario, work=replace(scenario.work, pipeline=Pipeline.model_validate(described)))
    register(again.work)
    assert again.batch("run-1").rows == 40
