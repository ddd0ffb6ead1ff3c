"""Each DAG of `dags/` runs, one after the other, as Airflow's `dag.test()` runs it, on one pipeline."""

from __future__ import annotations

import ast
import inspect
import time
from pathlib import Path
from typing import Any

import pytest
from aliyun.log import LogClient, LogItem, PutLogsRequest

import airflow_provider_slshudi
from airflow_provider_slshudi import operations_dag, tail_dag
from airflow_provider_slshudi.local import LocalSls
from tests.airflow.dagtest import TestedDags
from tests.airflow.test_example_consumers import CONSUMERS
from tests.local.sdk import by_ip
from tests.machine import ROOT, environment, write_pipeline
from tests.services import hive_metastore

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
    ("fleet", {}),
    ("operators", {}),
    ("operations", {"act": "backfill", "everything": True}),
    ("operations", {"act": "verify", "source": True}),
)
READS = ("tail", "backfill", "fleet")
"""What reads new logs, by a DAG's role or by its act."""
COUNT = 200


def put(client: LogClient, logstore: str, names: tuple[str, str], first: int = 0) -> None:
    """Some logs with an id and a time in milliseconds, whose keys are given, from a number on."""
    now = int(time.time())
    id_, at = names
    contents = [[(id_, f"id-{number}"), (at, str(now * 1000))] for number in range(first, first + COUNT)]
    items = [LogItem(now, contents=content) for content in contents]
    client.put_logs(PutLogsRequest("ads", logstore, "ads", "10.0.0.1", items))


def rows(table: Path) -> int:
    """As hudi-rs counts them."""
    from hudi import HudiTableBuilder

    return sum(batch.num_rows for batch in HudiTableBuilder.from_base_uri(f"file://{table}").build().read())


def test_each_example_runs_and_every_log_is_in_the_table_once(tmp_path: Path) -> None:
    examples_by_role = {file.stem.removeprefix("slshudi_") for file in (ROOT / "dags").glob("*.py")}
    assert {role for role, _ in ORDER} == examples_by_role - {*CONSUMERS}
    pipelines, lake = tmp_path / "pipelines", tmp_path / "lake"
    pipelines.mkdir()
    write_pipeline(pipelines / "ad_events.yaml", lake / "ad_events")
    with LocalSls(tmp_path / "sls") as server, hive_metastore() as metastore:
        write_pipeline(
            pipelines / "ad_users.yaml", lake / "ad_users", catalog={"metastore": metastore, "database": "lake"}
        )
        client = by_ip(server.connection())
        client.create_project("ads", "tests")
        for logstore in ("events", "users"):
            client.create_logstore("ads", logstore, ttl=7, shard_count=1)
        put(client, "users", ("user_id", "updated_at"))
        variables = environment(pipelines, tmp_path / "ledger.db", server)
        examples = TestedDags(tmp_path / "airflow", ROOT / "dags", variables)
        for number, (role, conf) in enumerate(ORDER):
            act = conf.get("act", role)
            if act in READS:
                put(client, "events", ("event_id", "event_time"), number * COUNT)
            states, output = examples.run(f"slshudi_{role}.py", conf)
            well = {*states.values()} <= {"success", "skipped"} and "success" in states.values()
            assert well, f"{role}: {states}\n{output[-6000:]}"
            if role == "operations":
                done = {task for task, state in states.items() if state == "success"}
                batch = {f"batch.{step}" for step in ("settle", "plan", "open", "append", "record", "commit")}
                assert done == {"choose", *(batch if act == "backfill" else [act])}
    assert not (ROOT / "dags" / "spark-warehouse").exists(), "a driver left something in its working directory"
    # The proof of `verify` compared every log with the service; these count them once more.
    assert rows(lake / "ad_events") == 4 * COUNT
    assert rows(lake / "ad_users") == COUNT


def test_each_public_operator_is_in_an_example() -> None:
    files = [*(Path(inspect.getfile(factory)) for factory in (tail_dag, operations_dag)), *(ROOT / "dags").glob("*.py")]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    assert {name for name in airflow_provider_slshudi.__all__ if name.startswith("SlsHudi")} <= used
