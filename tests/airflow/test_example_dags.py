"""Each DAG of `dags/` runs, one after the other, as Airflow's `dag.test()` runs it, on one pipeline."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from aliyun.log import LogClient, LogItem, PutLogsRequest

from airflow_provider_slshudi.local import LocalSls
from tests.airflow.dagtest import TestedDags
from tests.local.sdk import by_ip
from tests.machine import ROOT, environment, write_pipeline

pytestmark = pytest.mark.long
ORDER: tuple[tuple[str, dict[str, Any]], ...] = (
    ("tail", {}),
    ("watch", {}),
    ("recovery", {}),
    ("backfill", {"everything": True}),
    ("repair", {"act": "recover", "reason": "to see that nothing is left"}),
    ("override", {"act": "rebuild-ledger", "reason": "to see that nothing changes"}),
    ("maintenance", {}),
    ("verify", {"source": True}),
)
COUNT = 200


def put(client: LogClient, first: int) -> None:
    """Some ad events from a number on."""
    now = int(time.time())
    contents = [
        [("event_id", f"event-{number}"), ("event_time", str(now * 1000))] for number in range(first, first + COUNT)
    ]
    items = [LogItem(now, contents=content) for content in contents]
    client.put_logs(PutLogsRequest("ads", "events", "ads", "10.0.0.1", items))


def test_each_example_runs_and_every_log_is_in_the_table_once(tmp_path: Path) -> None:
    assert {role for role, _ in ORDER} == {file.stem.removeprefix("slshudi_") for file in (ROOT / "dags").glob("*.py")}
    pipelines = tmp_path / "pipelines"
    pipelines.mkdir()
    write_pipeline(pipelines / "ad_events.yaml", tmp_path / "lake" / "ad_events")
    with LocalSls(tmp_path / "sls") as server:
        client = by_ip(server.connection())
        client.create_project("ads", "tests")
        client.create_logstore("ads", "events", ttl=7, shard_count=1)
        variables = environment(pipelines, tmp_path / "ledger.db", server)
        examples = TestedDags(tmp_path / "airflow", ROOT / "dags", variables)
        for number, (role, conf) in enumerate(ORDER):
            if role in ("tail", "backfill"):
                put(client, number * COUNT)
            states, _ = examples.run(f"slshudi_{role}.py", conf)
            assert {*states.values()} <= {"success", "skipped"} and "success" in states.values(), (role, states)
    # The proof of the last one compared every log with the service; this counts them once more.
    from hudi import HudiTableBuilder

    batches = HudiTableBuilder.from_base_uri(f"file://{tmp_path / 'lake' / 'ad_events'}").build().read()
    assert sum(batch.num_rows for batch in batches) == 2 * COUNT
