"""YARN and HDFS: executors in containers that have Python alone; a secret of Spark's own with the driver."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_provider_slshudi.exceptions import JobFailed
from airflow_provider_slshudi.ledger.states import State
from airflow_provider_slshudi.protocol.verify import verify
from airflow_provider_slshudi.spark import executors, packages
from airflow_provider_slshudi.spark.launch import SubprocessLauncher
from tests.hadoop import Hadoop, hadoop
from tests.scenarios import Scenario
from tests.services import BRIEF

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster() -> Iterator[Hadoop]:
    with hadoop() as made:
        yield made


def test_batches_and_a_proof_on_yarn(
    scenario: Callable[..., Scenario], cluster: Hadoop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(cluster.settings))
    monkeypatch.setattr(executors, "_COMPRESSION", 1)
    archive = tmp_path / "slshudi.tar.gz"
    executors.pack(archive)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    conf = {
        "spark.pyspark.python": str(tmp_path / "bare" / "bin" / "python"),
        # Nothing is sent that lies on this machine already.
        "spark.yarn.jars": f"local:{packages.spark_home()}/jars/*",
        "spark.executor.instances": "2",
        "spark.executor.extraJavaOptions": BRIEF,
        "spark.yarn.am.extraJavaOptions": BRIEF,
        "spark.executor.memory": "512m",
        "spark.yarn.am.memory": "512m",
    }
    made = scenario(
        shards=4,
        location=f"{cluster.files}/lake/ad_events",
        launcher=SubprocessLauncher("yarn"),
        spark={"archive": str(archive), "conf": conf},
    )
    made.put(400)
    try:
        assert made.batch("run-1").state is State.COMMITTED
    except JobFailed:
        print(cluster.said())
        raise
    proof = verify(made.work, source=True)
    assert proof.ok and proof.rows == 400

    key = made.work.connect().connection.access_key_secret.encode()
    files = [path for folder in cluster.containers() for path in folder.rglob("*") if path.is_file()]
    assert any(path.name == "stderr" for path in files)
    assert any(path.name.startswith("launch_container") for path in files)
    assert not [path for path in files if path.suffix not in (".so", ".jar") and key in path.read_bytes()]
