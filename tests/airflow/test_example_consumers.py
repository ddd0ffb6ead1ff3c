"""The examples of what computes on a table next: each has every log once, also after late logs and where one died."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aliyun.log import LogClient, LogItem, PutLogsRequest

from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.planning.periods import Periods
from tests.airflow.dagtest import TestedDags
from tests.commits import HOUR
from tests.local.sdk import by_ip
from tests.machine import ROOT, environment, write_pipeline
from tests.needs import DBT, needs_dbt

pytestmark = pytest.mark.long
CONSUMERS = ("impressions", "hourly", "pandas", "duckdb", "spark", "dbt", "report")
"""These examples, each a DAG file `dags/slshudi_NAME.py`."""

_ROWS = """
import duckdb, json, sys
print(json.dumps(duckdb.connect(sys.argv[1]).execute("FROM hourly ORDER BY event_hour").fetchall()))
"""


@dataclass
class Place:
    """A log service, the examples' DAGs, and the table of impressions."""

    client: LogClient
    dags: TestedDags
    table: Path
    count: int = 0
    start: int = field(default_factory=lambda: int(time.time()))
    put_by_hour: Counter[str] = field(default_factory=Counter)

    def put(self, hours_ago: int, count: int, has_time: bool = True) -> str:
        """Impressions of five users within an hour that is complete, which each tells, or none; gives its partition."""
        at = self.start - hours_ago * HOUR
        times = [("event_time", str(at * 1000))] if has_time else []
        contents = [
            [("event_id", f"id-{n}"), *times, ("user_id", f"u-{n % 5}"), ("country", "CN")]
            for n in range(self.count, self.count + count)
        ]
        items = [LogItem(int(time.time()), contents=[*content, ("price", "0.5")]) for content in contents]
        self.client.put_logs(PutLogsRequest("ads", "impressions", "ads", "10.0.0.1", items))
        self.count += count
        hour = Periods("hour").at(at).value
        self.put_by_hour[hour] += count * has_time
        return hour

    def run(self, role: str, **conf: Any) -> dict[str, str]:
        """The states of the tasks, none of which failed."""
        states, output = self.dags.run(f"slshudi_{role}.py", conf)
        assert {*states.values()} <= {"success", "skipped"}, f"{role}: {states}\n{output[-6000:]}"
        return states

    def beside(self, name: str) -> Path:
        """What a consumer made."""
        return self.table.with_name(f"{self.table.name}{name}")

    def hours(self) -> dict[str, dict[str, Any]]:
        """The aggregates of each hour that has rows."""
        files = {file.parent.name: pq.read_table(file) for file in self.beside("_hourly").rglob("part.parquet")}
        return {name.partition("=")[2]: rows.to_pylist()[0] for name, rows in files.items() if rows.num_rows}

    def modelled(self) -> list[list[Any]]:
        """The rows of dbt's model, as dbt's own DuckDB reads them: an older one cannot read its file."""
        python = Path(DBT or "").resolve().with_name("python")
        rows: list[list[Any]] = json.loads(subprocess.check_output([python, "-c", _ROWS, self.beside("_dbt.duckdb")]))
        return rows

    def expected(self) -> list[list[Any]]:
        """What they are by the logs that were put."""
        return [[hour, "CN", count / 2, count] for hour, count in sorted(self.put_by_hour.items())]

    def spent(self) -> float:
        files = [pq.read_table(file) for file in self.beside("_pandas").glob("*.parquet")]
        return float(sum(pa.concat_tables(files)["price"].to_pylist()))

    def loaded(self) -> Counter[str]:
        with duckdb.connect(str(self.beside(".duckdb"))) as database:
            return Counter(id_ for (id_,) in database.execute("SELECT event_id FROM impressions").fetchall())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = tmp_path_factory.mktemp("place")
    pipelines, table = home / "pipelines", home / "lake" / "ad_impressions"
    pipelines.mkdir()
    write_pipeline(pipelines / "ad_impressions.yaml", table)
    with LocalSls(home / "sls") as server:
        client = by_ip(server.connection())
        client.create_project("ads", "tests")
        client.create_logstore("ads", "impressions", ttl=7, shard_count=1)
        variables = environment(pipelines, home / "ledger.db", server) | {"AIRFLOW_VAR_SLSHUDI_DBT": DBT or "dbt"}
        dags = TestedDags(home / "airflow", ROOT / "dags", variables)
        yield Place(client, dags, table)


def test_each_consumer_has_every_log_once_and_an_hour_again_after_late_logs(place: Place) -> None:
    first = place.put(3, 20)
    assert place.run("impressions")["partitions"] == "success"
    for role in ("hourly", "pandas", "duckdb"):
        place.run(role)
    assert place.hours() == {first: {"country": "CN", "price_sum": 10.0, "count_all": 20}}

    second = place.put(2, 10)
    assert place.put(3, 5) == first
    place.run("impressions")
    for role in ("hourly", "pandas", "duckdb", "spark"):
        assert "success" in place.run(role).values()
    assert {hour: sums["count_all"] for hour, sums in place.hours().items()} == {first: 25, second: 10}
    assert place.run("report", hours_ago=3) == {"wait": "success", "report": "success"}
    assert place.spent() == 35 / 2
    assert place.loaded() == Counter(f"id-{number}" for number in range(35))
    from hudi import HudiTableBuilder

    users = HudiTableBuilder.from_base_uri(place.beside("_users").as_uri()).build().read()
    assert sorted(pa.Table.from_batches(users)["user_id"].to_pylist()) == [f"u-{number}" for number in range(5)]
    assert not (ROOT / "dags" / "spark-warehouse").exists(), "Spark left something in its working directory"


def test_rows_without_a_time_are_in_no_hour_and_are_not_missed(place: Place) -> None:
    before = place.loaded(), place.spent()
    place.put(2, 5)
    place.put(2, 5, has_time=False)
    place.run("impressions")
    for role in ("pandas", "duckdb", "spark"):
        assert "success" in place.run(role).values()
    assert place.loaded() == before[0] + Counter(f"id-{number}" for number in range(place.count - 10, place.count))
    assert place.spent() == before[1] + 10 / 2


def test_where_nothing_is_new_nothing_is_done(place: Place) -> None:
    loaded = place.loaded()
    states = place.run("spark")
    assert (states["take"], states["upsert"], states["confirm"]) == ("skipped", "skipped", "skipped")
    assert place.loaded() == loaded


@needs_dbt
def test_dbt_replaces_an_hour_that_is_complete_a_second_time(place: Place) -> None:
    hour = place.put(4, 8)
    place.run("impressions")
    assert place.run("dbt")["confirm"] == "success"
    assert place.modelled() == place.expected()

    assert place.put(4, 4) == hour
    place.run("impressions")
    assert place.run("dbt")["confirm"] == "success"
    assert place.modelled() == place.expected()
    assert place.run("dbt")["dbt_run"] == "skipped"
