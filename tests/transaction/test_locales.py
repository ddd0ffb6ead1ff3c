"""Steps on machines, and in shells, of other languages, encodings and zones."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest
from aliyun.log import LogItem, PutLogsRequest

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import JobFailed
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.spark import packages
from airflow_provider_slshudi.spark.launch import SubprocessLauncher
from airflow_provider_slshudi.transaction import steps
from airflow_provider_slshudi.transaction.settle import settle
from tests.pipelines import ad_events
from tests.scenarios import Scenario, log

Make = Callable[..., Scenario]

CITY = "上海"
HOSTILE = {
    "LC_ALL": "C",
    "LANG": "tr_TR.UTF-8",
    "TZ": "Asia/Shanghai",
    "JAVA_TOOL_OPTIONS": "-Duser.language=tr -Dfile.encoding=ISO-8859-1 -Duser.timezone=Asia/Shanghai",
}


def cities(location: Path, source: dict[str, str]) -> Pipeline:
    table = {"path": f"file://{location}", "name": "cities", "partition": {"by": "field", "column": "city"}}
    columns = [{"name": "event_id"}, {"name": "city"}]
    return ad_events(location, source=source, table=table, columns=columns, rest_column=None)


@pytest.fixture
def by_city(scenario: Make) -> Scenario:
    return scenario(shards=1, described=cities)


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in HOSTILE.items():
        monkeypatch.setenv(name, value)


def put(pipeline: Scenario, first: int) -> None:
    items = [LogItem(1_700_000_000, contents=[*log(number), ("city", CITY)]) for number in range(first, first + 10)]
    source = pipeline.work.pipeline.source
    pipeline.client.put_logs(PutLogsRequest(source.project, source.logstore, "ads", "10.0.0.1", items))


def files(pipeline: Scenario) -> list[Path]:
    return list(Path(pipeline.work.storage.full("")).glob(f"city={CITY}/*.parquet"))


def test_a_turkish_shell_without_utf8_far_east_commits_and_rolls_back_as_any_other(
    by_city: Scenario, hostile: None
) -> None:
    put(by_city, 0)
    first = by_city.prepare(by_city.by("run-first"))
    put(by_city, 10)
    second = by_city.open(by_city.by("run-second"))
    steps.append(by_city.by("run-second"), second.id, second.token)
    assert len(files(by_city)) == 2
    launched = by_city.by("run-third", launcher=SubprocessLauncher())
    settle(launched, lambda run: True)
    states = [by_city.work.ledger.get(one.id).state for one in (first, second)]
    assert states == [State.COMMITTED, State.ABORTED]
    assert len(files(by_city)) == 1
    completed = Timeline.load(by_city.work.storage).get(str(first.instant))
    now = f"{datetime.now(timezone.utc):%Y%m%d%H%M%S}999"
    assert completed is not None and str(completed.completion) <= now


def test_a_jvm_that_is_not_as_it_was_started_does_nothing_and_says_what_differs(
    by_city: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(by_city, 0)
    monkeypatch.setattr(packages, "world", lambda: {"LC_ALL": "C"})
    monkeypatch.setenv("_JAVA_OPTIONS", "-Duser.language=tr")
    with pytest.raises(JobFailed, match=r"RuntimeMissing: .*user.language is 'tr' .*sun.jnu.encoding is 'ANSI"):
        by_city.open(by_city.by("run-first", launcher=SubprocessLauncher()))
    assert not by_city.work.storage.exists(".hoodie")
