"""Kubernetes: Spark's own client, what it asks for, and an API server's answers, with pods that are processes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from airflow.providers.apache.spark.hooks import spark_submit

from airflow_provider_slshudi.exceptions import JobFailed
from airflow_provider_slshudi.handover.messages import FILE
from airflow_provider_slshudi.hooks.spark import SparkLauncher
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.spark import python_archive
from tests import needs
from tests.kubernetes import Kubernetes, kubernetes
from tests.kubernetes.apiserver import allow, forbid, programs
from tests.machine import connection
from tests.scenarios import Scenario
from tests.services import BRIEF, telling

pytestmark = pytest.mark.long
NAME = f"Ad_events.with-{'a' * 75}-long.name"
"""As long as a pipeline's may be, of all that is allowed in one; Kubernetes' names are shorter, and of less."""


@pytest.fixture(params=["memory", "kubernetes"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Kubernetes]:
    found = programs() if request.param == "kubernetes" else None
    if request.param == "kubernetes" and found is None:
        pytest.skip(needs.KUBERNETES)
    with kubernetes(found) as made:
        yield made


@pytest.fixture
def uploads(tmp_path: Path) -> Path:
    """The folder through which spark-submit hands files to pods."""
    return tmp_path / "uploads"


@pytest.fixture
def spark_settings(uploads: Path, archive: str, python: str) -> dict[str, Any]:
    """A pipeline's `spark`."""
    conf = {
        "spark.kubernetes.container.image": "any",
        "spark.kubernetes.file.upload.path": f"file://{uploads}",
        "spark.pyspark.python": python,
        "spark.executor.instances": "2",
        "spark.executor.extraJavaOptions": BRIEF,
        "spark.driver.extraJavaOptions": BRIEF,
        "spark.executor.memory": "512m",
        "spark.driver.memory": "1g",
    }
    return {"archive": archive, "conf": conf}


@pytest.fixture
def launcher(cluster: Kubernetes, mode: str, monkeypatch: pytest.MonkeyPatch) -> SparkLauncher:
    # Airflow's hook wants the client's package, with which it kills pods.
    monkeypatch.setattr(spark_submit, "kube_client", Mock(), raising=False)
    monkeypatch.setenv("KUBECONFIG", str(cluster.config))
    host, _, port = cluster.access.address.rpartition(":")
    given = connection("spark", host=f"k8s://{host}", port=int(port), extra={"deploy-mode": mode})
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", given)
    return SparkLauncher("spark_default")


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_a_batch_by_executors_in_pods_and_a_driver_here_or_in_one(
    scenario: Callable[..., Scenario],
    uploads: Path,
    spark_settings: dict[str, Any],
    launcher: SparkLauncher,
    cluster: Kubernetes,
    mode: str,
) -> None:
    # Of the longest name that a pipeline may have.
    made = scenario(name=NAME, shards=4, launcher=launcher, spark=spark_settings)
    made.put(400)
    with telling(cluster.kubelet.said):
        batch = made.batch("run-1")
    assert batch.state is State.COMMITTED and batch.rows == 400
    assert len(cluster.pods("executor")) >= 2
    secrets = [made.work.connect().connection.access_key_secret.reveal()]
    drivers = cluster.pods("driver")
    assert len(drivers) == (mode == "cluster")
    for driver in drivers:
        assert driver["spec"]["restartPolicy"] == "Never"
        container = driver["spec"]["containers"][0]
        assert container["args"][-1] == FILE
        variables = {item["name"]: item.get("value") for item in container["env"]}
        assert variables["PYTHONPATH"] == python_archive.FOLDER and variables[python_archive.EXPECTED]
        (file,) = uploads.rglob(FILE)
        secrets.append(json.loads(file.read_text())["token"])
    # What a person finds who may read the cluster's objects, and its logs.
    seen = json.dumps(cluster.kubelet.seen) + cluster.kubelet.said()
    assert not [secret for secret in secrets if secret in seen]


@pytest.mark.parametrize("cluster, mode", [("kubernetes", "cluster")], indirect=["cluster"])
def test_whom_no_role_lets_make_pods_is_told_so_and_goes_on_with_one(
    scenario: Callable[..., Scenario], spark_settings: dict[str, Any], launcher: SparkLauncher, cluster: Kubernetes
) -> None:
    made = scenario(name=NAME, shards=4, launcher=launcher, spark=spark_settings)
    made.put(4)
    forbid(cluster.access)
    with pytest.raises(JobFailed, match='User "airflow" cannot'):
        made.batch("run-1")
    assert not cluster.pods("driver")
    allow(cluster.access)
    batch = made.batch("run-2")
    assert batch.state is State.COMMITTED and batch.rows == 4
