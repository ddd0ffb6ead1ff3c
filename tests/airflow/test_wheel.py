"""A user's own DAG, with the package from a wheel and no checkout in sight."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from aliyun.log import LogItem, PutLogsRequest

from airflow_provider_slshudi.local import LocalSls
from tests.airflow.dagtest import TestedDags
from tests.local.sdk import by_ip
from tests.machine import ROOT, connection

pytestmark = pytest.mark.long
COUNT = 200
DAG = """
from datetime import datetime

import airflow_provider_slshudi
from airflow.sdk import DAG, task
from airflow_provider_slshudi import Pipeline, micro_batch

pipeline = Pipeline(
    name="clicks",
    source={{"connection": "sls_default", "project": "ads", "logstore": "events", "start": "begin"}},
    table={{"path": "{table}", "name": "clicks"}},
    columns=[{{"name": "event_id"}}],
)

with DAG("mine", schedule=None, start_date=datetime(2026, 1, 1)) as dag:

    @task
    def before():
        print("the package is at", airflow_provider_slshudi.__file__)

    @task
    def after():
        print("every row is there")

    batch = micro_batch(pipeline, sls_conn_id="my_sls", spark_conn_id="my_spark", ledger_conn_id="my_ledger")
    before() >> batch >> after()
"""


def test_a_batch_between_tasks_of_ones_own_runs_from_a_wheel(tmp_path: Path) -> None:
    from hudi import HudiTableBuilder

    pip = [sys.executable, "-m", "pip"]
    subprocess.run([*pip, "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    subprocess.run([*pip, "install", "-q", "--no-deps", "--target", str(installed), str(wheel)], check=True)
    file, table = tmp_path / "dags" / "mine.py", tmp_path / "lake" / "clicks"
    file.parent.mkdir()
    file.write_text(DAG.format(table=f"file://{table}"), encoding="utf-8")
    with LocalSls(tmp_path / "sls") as server:
        sls = server.connection()
        client = by_ip(sls)
        client.create_project("ads", "tests")
        client.create_logstore("ads", "events", ttl=7, shard_count=2)
        items = [LogItem(int(time.time()), contents=[("event_id", f"event-{number}")]) for number in range(COUNT)]
        client.put_logs(PutLogsRequest("ads", "events", "ads", "10.0.0.1", items))
        ledger = connection("slshudi_ledger", schema=str(tmp_path / "ledger.db"), extra={"dialect": "sqlite"})
        keys = {"login": sls.access_key_id, "password": sls.access_key_secret.reveal()}
        variables = {
            "AIRFLOW_CONN_MY_SLS": connection("sls", host=sls.endpoint, **keys),
            "AIRFLOW_CONN_MY_SPARK": connection("spark", host="local[2]"),
            "AIRFLOW_CONN_MY_LEDGER": ledger,
            "PYTHONPATH": str(installed),
        }
        states, said = TestedDags(tmp_path / "airflow", file.parent, variables).run(file.name)
    assert f"the package is at {installed}" in said and str(ROOT / "airflow_provider_slshudi") not in said
    assert [*states.values()] == ["success"] * 8, states
    rows = HudiTableBuilder.from_base_uri(f"file://{table}").build().read()
    assert sum(batch.num_rows for batch in rows) == COUNT
