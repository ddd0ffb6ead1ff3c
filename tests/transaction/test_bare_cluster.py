"""A cluster with nothing but Spark and Python: package and dependencies travel in an archive, the key by itself."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_provider_slshudi.exceptions import ExecutorUnfit, JobFailed
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.spark.launch import SubprocessLauncher
from tests.scenarios import Scenario
from tests.services import SparkCluster, spark_cluster
from tests.upserts import Change, put

pytestmark = pytest.mark.long
BARE = "spark.pyspark.python"
ONE = {"spark.cores.max": "1"}
"""One executor: each unpacks the archive, which takes ten seconds."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    # The worker's own environment has no package either.
    with spark_cluster({"PYTHONPATH": ""}, workers=2) as made:
        yield made


@pytest.fixture
def launcher(cluster: SparkCluster, monkeypatch: pytest.MonkeyPatch) -> SubprocessLauncher:
    monkeypatch.setenv("SPARK_CONF_DIR", str(cluster.settings))
    return SubprocessLauncher(cluster.master)


def test_batches_and_a_proof_where_executors_have_python_alone(
    scenario: Callable[..., Scenario],
    launcher: SubprocessLauncher,
    cluster: SparkCluster,
    python: str,
    archive: str,
    tmp_path: Path,
) -> None:
    events = tmp_path / "events"
    events.mkdir()
    conf = {BARE: python, "spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri()}
    # Both workers get an executor.
    conf["spark.executor.cores"] = "2"
    made = scenario(shards=4, launcher=launcher, spark={"archive": archive, "conf": conf})
    made.put(400)
    assert made.batch("run-1").state is State.COMMITTED
    proof = verify(made.work, source=True)
    assert proof.ok and proof.rows == 400

    key = made.work.connect().connection.access_key_secret.reveal()
    shown = b"".join(file.read_bytes() for file in events.iterdir()) + cluster.page().encode()
    assert b"slshudi.sls.half" in shown and cluster.page()
    assert key.encode() not in shown
    logs = [path for path in cluster.settings.parent.rglob("*") if path.is_file() and "slshudi" not in path.parts]
    assert any(path.name == "stderr" for path in logs)
    assert not [path for path in logs if key.encode() in path.read_bytes()]


def test_upserts_where_executors_have_python_alone(
    upserts: Callable[..., Scenario], launcher: SubprocessLauncher, python: str, archive: str
) -> None:
    made = upserts(launcher=launcher)
    spark = made.work.pipeline.spark.model_copy(update={"archive": archive, "conf": {BARE: python, **ONE}})
    object.__setattr__(made.work, "pipeline", made.work.pipeline.model_copy(update={"spark": spark}))
    put(made.client, made.work.pipeline, [Change(f"c-{number}", 1, "eu") for number in range(20)])
    assert made.batch("run-1").rows == 20


def test_executors_without_the_package_read_nothing_and_say_so(
    scenario: Callable[..., Scenario], launcher: SubprocessLauncher, python: str
) -> None:
    made = scenario(launcher=launcher, spark={"conf": {BARE: python, **ONE}})
    made.put(20)
    with pytest.raises(JobFailed, match=r"its Python has no airflow_provider_slshudi\. Nothing was read") as failed:
        made.batch("run-1")
    assert failed.value.cause is ExecutorUnfit


def test_executors_without_that_python_say_which(
    scenario: Callable[..., Scenario], launcher: SubprocessLauncher, archive: str
) -> None:
    made = scenario(launcher=launcher, spark={"archive": archive, "conf": {BARE: "python9.9", **ONE}})
    made.put(20)
    with pytest.raises(JobFailed, match=r"python9\.9 cannot be started \(error=2") as failed:
        made.batch("run-1")
    assert failed.value.cause is ExecutorUnfit


def test_an_archive_of_other_code_is_found_before_anything_is_read(
    scenario: Callable[..., Scenario], launcher: SubprocessLauncher, python: str, archive: str, tmp_path: Path
) -> None:
    other = tmp_path / "other.tar.gz"
    with tarfile.open(archive) as given, tarfile.open(other, "w:gz", compresslevel=1) as changed:
        for entry in given:
            content = given.extractfile(entry)
            assert content is not None
            if entry.name == "airflow_provider_slshudi/planning/ranges.py":
                entry.size += 1
                edited = tmp_path / "ranges.py"
                edited.write_bytes(content.read() + b"\n")
                with edited.open("rb") as file:
                    changed.addfile(entry, file)
            else:
                changed.addfile(entry, content)
    made = scenario(launcher=launcher, spark={"archive": str(other), "conf": {BARE: python, **ONE}})
    made.put(20)
    with pytest.raises(JobFailed, match=r"airflow_provider_slshudi \w{12} and not \w{12}") as failed:
        made.batch("run-1")
    assert failed.value.cause is ExecutorUnfit
    assert not made.work.ledger.coverage(made.work.pipeline.name)
