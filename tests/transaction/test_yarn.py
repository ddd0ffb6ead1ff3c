"""YARN and HDFS: executors, and in cluster mode drivers, in containers that have Python alone."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_provider_slshudi.exceptions import JobFailed
from airflow_provider_slshudi.handover.job_order import Verb
from airflow_provider_slshudi.handover.messages import Job, encode
from airflow_provider_slshudi.hooks.spark import SparkLauncher
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.spark import packages
from airflow_provider_slshudi.spark.launch import SubprocessLauncher
from airflow_provider_slshudi.system.points import Point
from tests.crash.held import Holds
from tests.hadoop import Hadoop, hadoop
from tests.machine import connection
from tests.points import FOLDER, SITE
from tests.scenarios import Scenario
from tests.services import BRIEF, telling
from tests.waiting import until

pytestmark = pytest.mark.long
_APPEND = """
import sys
from airflow_provider_slshudi.hooks.spark import SparkLauncher
from airflow_provider_slshudi.handover.messages import decode
job = decode(sys.stdin.read())
SparkLauncher("spark_default").run(job.verb, job.order, job.secrets)
"""
"""A task's process that only appends."""
IN_CONTAINERS = {"spark.driver.memory": "512m", "spark.driver.extraJavaOptions": BRIEF}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Hadoop]:
    with hadoop() as made:
        yield made


@pytest.fixture
def yarn(cluster: Hadoop, monkeypatch: pytest.MonkeyPatch, archive: str, python: str) -> dict[str, Any]:
    """The part `spark` of a pipeline's file whose containers have a Python with nothing else."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(cluster.settings))
    conf = {
        "spark.pyspark.python": python,
        # Nothing is sent that lies on this machine already.
        "spark.yarn.jars": f"local:{packages.spark_home()}/jars/*",
        "spark.executor.instances": "2",
        "spark.executor.extraJavaOptions": BRIEF,
        "spark.yarn.am.extraJavaOptions": BRIEF,
        "spark.executor.memory": "512m",
        "spark.yarn.am.memory": "512m",
    }
    return {"archive": archive, "conf": conf}


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> SparkLauncher:
    """Drivers in cluster mode, as Airflow's tasks start them."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", connection("spark", host="yarn", extra={"deploy-mode": "cluster"}))
    return SparkLauncher("spark_default")


def holding(cluster: Hadoop, secret: str) -> list[Path]:
    """The files of containers that have a secret in them."""
    files = [path for folder in cluster.containers() for path in folder.rglob("*") if path.is_file()]
    assert any(path.name == "stderr" for path in files)
    assert any(path.name.startswith("launch_container") for path in files)
    return [path for path in files if path.suffix not in (".so", ".jar") and secret.encode() in path.read_bytes()]


def test_batches_and_a_proof_on_yarn(scenario: Callable[..., Scenario], cluster: Hadoop, yarn: dict[str, Any]) -> None:
    made = scenario(
        shards=4, location=f"{cluster.files}/lake/ad_events", launcher=SubprocessLauncher("yarn"), spark=yarn
    )
    made.put(400)
    with telling(cluster.said):
        assert made.batch("run-1").state is State.COMMITTED
    proof = verify(made.work, source=True)
    assert proof.ok and proof.rows == 400
    assert not holding(cluster, made.work.connect().connection.access_key_secret.reveal())


def test_a_driver_in_cluster_mode_ends_with_the_task_and_the_next_run_brings_every_log_once(
    scenario: Callable[..., Scenario],
    cluster: Hadoop,
    yarn: dict[str, Any],
    clusters: SparkLauncher,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    holds = Holds(tmp_path / "points")
    variables = {FOLDER: str(holds.folder), "PYTHONPATH": str(SITE)}
    yarn["conf"] |= IN_CONTAINERS | {f"spark.yarn.appMasterEnv.{name}": value for name, value in variables.items()}
    made = scenario(shards=4, location=f"{cluster.files}/lake/clustered", launcher=clusters, spark=yarn)
    made.put(400)
    opened = made.open(made.by("run-1"))
    order = made.work.order(
        transaction=opened.id,
        token=opened.token,
        instant=str(opened.instant),
        digest=made.work.ledger.get(opened.id).order_digest or "",
    )
    holds.arm(Point.APPEND_INFLIGHT)
    job = encode(Job(Verb.APPEND, order, made.work.connect().connection.to_env()))
    task = subprocess.Popen([sys.executable, "-c", _APPEND], stdin=subprocess.PIPE)
    assert task.stdin is not None
    task.stdin.write(job.encode())
    task.stdin.close()
    try:
        driver = holds.wait(Point.APPEND_INFLIGHT, task)
        assert psutil.pid_exists(driver)
    finally:
        task.kill()
        task.wait()
    until("the end of the driver, which nobody but itself ends", lambda: not psutil.pid_exists(driver))
    assert made.work.ledger.get(opened.id).state is State.OPEN

    with telling(cluster.said):
        assert made.batch("run-2").state is State.COMMITTED
    assert "the driver runs on " in caplog.text and "400 rows in" in caplog.text, "the task's log has its words"
    proof = verify(made.work, source=True)
    assert proof.ok and proof.rows == 400
    assert not holding(cluster, made.work.connect().connection.access_key_secret.reveal())


def test_a_driver_in_cluster_mode_tells_its_error_to_the_task(
    scenario: Callable[..., Scenario], cluster: Hadoop, yarn: dict[str, Any], clusters: SparkLauncher
) -> None:
    yarn["conf"] |= IN_CONTAINERS
    made = scenario(shards=1, location=f"{cluster.files}/lake/failed", launcher=clusters, spark=yarn)
    made.put(10)
    opened = made.open(made.by("run-1"))
    order = made.work.order(transaction=opened.id, token=opened.token, instant="20200101000000000")
    with pytest.raises(JobFailed, match="no order for instant 20200101000000000") as failed:
        clusters.run(Verb.APPEND, order, made.work.connect().connection.to_env())
    assert failed.value.returncode
