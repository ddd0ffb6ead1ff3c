"""Kubernetes in cluster mode: Spark's own client and what it asks for, with pods that are processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from airflow.providers.apache.spark.hooks import spark_submit

from airflow_provider_slshudi.exceptions import JobFailed
from airflow_provider_slshudi.hooks.spark import SparkLauncher
from airflow_provider_slshudi.ledger.states import State
from airflow_provider_slshudi.notes.remote import FILE
from airflow_provider_slshudi.spark import executors
from tests.kubernetes import kubernetes
from tests.machine import connection
from tests.scenarios import Scenario
from tests.services import BRIEF

pytestmark = pytest.mark.long


def test_a_batch_by_a_driver_and_executors_in_pods(
    scenario: Callable[..., Scenario], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, archive: str, python: str
) -> None:
    # Airflow's hook wants the client's package, with which it kills pods.
    monkeypatch.setattr(spark_submit, "kube_client", Mock(), raising=False)
    uploads = tmp_path / "uploads"
    with kubernetes() as cluster:
        host, _, port = cluster.address.rpartition(":")
        given = connection("spark", host=f"k8s://{host}", port=int(port), extra={"deploy-mode": "cluster"})
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", given)
        conf = {
            "spark.kubernetes.container.image": "any",
            "spark.kubernetes.file.upload.path": f"file://{uploads}",
            "spark.pyspark.python": python,
            "spark.executor.instances": "2",
            "spark.executor.extraJavaOptions": BRIEF,
            "spark.driver.extraJavaOptions": BRIEF,
            "spark.executor.memory": "512m",
            "spark.driver.memory": "512m",
        }
        made = scenario(shards=4, launcher=SparkLauncher("spark_default"), spark={"archive": archive, "conf": conf})
        made.put(400)
        try:
            batch = made.batch("run-1")
        except JobFailed:
            print(cluster.said())
            raise
        assert batch.state is State.COMMITTED and batch.rows == 400
        (driver,) = cluster.pods("driver")
        assert driver["spec"]["restartPolicy"] == "Never"
        container = driver["spec"]["containers"][0]
        assert container["args"][-2:] == ["append", FILE]
        variables = {item["name"]: item.get("value") for item in container["env"]}
        assert variables["PYTHONPATH"] == executors.FOLDER and variables[executors.EXPECTED]
        assert len(cluster.pods("executor")) >= 2
        # What a person finds who may read the cluster's objects: neither the key nor the token.
        (file,) = uploads.rglob(FILE)
        token = json.loads(file.read_text())["token"]
        seen = json.dumps(cluster.asked)
        assert made.work.connect().connection.access_key_secret not in seen and token not in seen
        assert not [secret for secret in (token,) if secret in cluster.said()]
