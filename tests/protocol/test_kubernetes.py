"""Kubernetes: Spark's own client, what it asks for, and an API server's answers, with pods that are processes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from airflow.providers.apache.spark.hooks import spark_submit

from airflow_provider_slshudi.exceptions import JobFailed
from airflow_provider_slshudi.hooks.spark import SparkLauncher
from airflow_provider_slshudi.ledger.states import State
from airflow_provider_slshudi.notes.remote import FILE
from airflow_provider_slshudi.spark import executors
from tests.kubernetes import Kubernetes, kubernetes
from tests.kubernetes.apiserver import programs
from tests.machine import connection
from tests.scenarios import Scenario
from tests.services import BRIEF

pytestmark = pytest.mark.long
NAME = f"Ad_events.with-{'a' * 75}-long.name"
"""As long as a pipeline's may be, of all that is allowed in one; Kubernetes' names are shorter, and of less."""


@pytest.fixture(params=["memory", "kubernetes"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Kubernetes]:
    found = programs() if request.param == "kubernetes" else None
    if request.param == "kubernetes" and found is None:
        pytest.skip("etcd and kube-apiserver are not on the search path: make kubernetes")
    with kubernetes(found) as made:
        yield made


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_a_batch_by_executors_in_pods_and_a_driver_here_or_in_one(
    scenario: Callable[..., Scenario],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    archive: str,
    python: str,
    cluster: Kubernetes,
    mode: str,
) -> None:
    # Airflow's hook wants the client's package, with which it kills pods.
    monkeypatch.setattr(spark_submit, "kube_client", Mock(), raising=False)
    monkeypatch.setenv("KUBECONFIG", str(cluster.config))
    uploads = tmp_path / "uploads"
    host, _, port = cluster.address.rpartition(":")
    given = connection("spark", host=f"k8s://{host}", port=int(port), extra={"deploy-mode": mode})
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
    launcher = SparkLauncher("spark_default")
    # Of the longest name that a pipeline may have.
    made = scenario(name=NAME, shards=4, launcher=launcher, spark={"archive": archive, "conf": conf})
    made.put(400)
    try:
        batch = made.batch("run-1")
    except JobFailed:
        print(cluster.kubelet.said())
        raise
    assert batch.state is State.COMMITTED and batch.rows == 400
    assert len(cluster.pods("executor")) >= 2
    secrets = [made.work.connect().connection.access_key_secret]
    drivers = cluster.pods("driver")
    assert len(drivers) == (mode == "cluster")
    for driver in drivers:
        assert driver["spec"]["restartPolicy"] == "Never"
        container = driver["spec"]["containers"][0]
        assert container["args"][-2:] == ["append", FILE]
        variables = {item["name"]: item.get("value") for item in container["env"]}
        assert variables["PYTHONPATH"] == executors.FOLDER and variables[executors.EXPECTED]
        (file,) = uploads.rglob(FILE)
        secrets.append(json.loads(file.read_text())["token"])
    # What a person finds who may read the cluster's objects, and its logs.
    seen = json.dumps(cluster.kubelet.seen) + cluster.kubelet.said()
    assert not [secret for secret in secrets if secret in seen]
