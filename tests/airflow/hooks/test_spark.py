"""Real spark-submits, small ones: an append without its order fails at once."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock
from urllib.parse import quote

import psutil
import pytest
from airflow.providers.apache.spark.hooks import spark_submit
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from airflow_provider_slshudi.exceptions import ConfigError, JobFailed
from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.handover.messages import Job, encode
from airflow_provider_slshudi.hooks.connections import ConnectionMissing
from airflow_provider_slshudi.hooks.spark import SparkLauncher, _Hook
from airflow_provider_slshudi.spark.session import DriverSession
from tests.machine import connection
from tests.pipelines import wide
from tests.waiting import until

SPARK = "AIRFLOW_CONN_SPARK_DEFAULT"
SECRET = "never-to-be-seen-0451"


def started_by(pid: int) -> list[psutil.Process]:
    """The processes below this one, once a JVM and a second one are among them."""
    children = psutil.Process(pid).children(recursive=True)
    names = []
    for process in children:
        with suppress(psutil.NoSuchProcess):
            names.append(process.name())
    return children if "java" in names and len(names) > 1 else []


def order_without_batch(table: Path) -> JobOrder:
    return JobOrder(wide(table).model_dump(mode="json"), "t-1", 1, "20260101000000000")


def test_a_job_that_fails_tells_its_last_lines_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(SPARK, connection("spark", host="local[1]"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # where no spark-submit is
    pages: list[str] = []
    with pytest.raises(JobFailed, match="no order for instant 20260101000000000") as failed:
        SparkLauncher("spark_default", pages.append).run(
            Verb.APPEND, order_without_batch(tmp_path / "t"), {"SLSHUDI_SLS_ACCESS_KEY_SECRET": SECRET}
        )
    assert failed.value.returncode not in (None, 0) and failed.value.verb == "append"
    assert failed.value.error == "ManifestError" and failed.value.fields["instant"] == "20260101000000000"
    told = capfd.readouterr()
    assert "slshudi append ad_events" in told.out + told.err, "the command is in the log"
    assert SECRET not in told.out + told.err + str(failed.value)
    assert pages == [], "under a local master the driver has none"


def test_a_drivers_page_is_shown_where_it_has_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SPARK, connection("spark", host="local[1]"))
    order, pages = order_without_batch(tmp_path / "t"), list[str]()
    order.pipeline["spark"]["conf"] = {"spark.ui.enabled": "true"}
    with pytest.raises(JobFailed):
        SparkLauncher("spark_default", pages.append).run(Verb.APPEND, order, {})
    (page,) = pages
    assert re.fullmatch(r"http://127\.0\.0\.1:[0-9]+", page)


def test_a_driver_ends_with_the_process_that_started_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SPARK, connection("spark", host="local[1]"))
    code = (
        "import sys; from airflow_provider_slshudi.hooks.spark import SparkLauncher; "
        "from airflow_provider_slshudi.handover.messages import decode; job = decode(sys.stdin.readline()); "
        "SparkLauncher('spark_default').run(job.verb, job.order, {})"
    )
    order = encode(Job(Verb.APPEND, order_without_batch(tmp_path / "t")))
    nothing = subprocess.DEVNULL
    command = [sys.executable, "-c", code]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=nothing, stderr=nothing, text=True)
    assert worker.stdin is not None
    print(order, file=worker.stdin, flush=True)
    try:
        children = until("spark-submit's JVM and the Python that it starts", lambda: started_by(worker.pid))
    finally:
        worker.kill()
        worker.wait()
    _, alive = psutil.wait_procs(children, timeout=20)
    assert alive == []


@pytest.mark.parametrize(
    "given",
    [
        connection("spark", host="local[2]"),
        connection("spark", host="yarn"),
        connection("spark", host="spark://master", port=7077),
        f"spark://{quote('local[*]', safe='')}",
        "spark://master:7077",
    ],
)
def test_the_master_is_the_one_that_spark_submit_gets(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SPARK, given)
    assert SparkLauncher("spark_default").master() == SparkSubmitHook()._connection["master"]


@pytest.mark.parametrize("host", ["local[2]", "spark://master"])
def test_cluster_mode_is_refused_where_spark_has_none(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SPARK, connection("spark", host=host, extra={"deploy-mode": "cluster"}))
    with pytest.raises(ConfigError, match="no deploy-mode cluster for Python under"):
        SparkLauncher("spark_default").run(Verb.APPEND, order_without_batch(Path("/none")), {})


def test_kubernetes_without_airflows_package_for_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(spark_submit, "kube_client", raising=False)
    monkeypatch.setenv(SPARK, connection("spark", host="k8s://https://api", port=6443))
    with pytest.raises(ConfigError, match="k8s://https://api:6443 needs apache-airflow-providers-cncf-kubernetes"):
        SparkLauncher("spark_default").run(Verb.APPEND, order_without_batch(Path("/none")), {})


def test_a_drivers_pod_is_deleted_in_the_namespace_that_spark_submit_names(monkeypatch: pytest.MonkeyPatch) -> None:
    client, provider = Mock(), Mock(ApiException=OSError)
    provider.get_kube_client.return_value = client
    monkeypatch.setattr(spark_submit, "kube_client", provider, raising=False)
    monkeypatch.setitem(sys.modules, "kubernetes", Mock())
    given = connection("spark", host="k8s://https://api", port=6443, extra={"deploy-mode": "cluster"})
    monkeypatch.setenv(SPARK, given)
    hook = _Hook(DriverSession("a job", Verb.APPEND))
    hook._submit_sp = Mock(**{"poll.return_value": None})
    said = [
        "State changed, new state: ",
        "\t pod name: slshudi-append-a-0123-driver",
        "\t namespace: lake",
        "\t labels: ",
    ]
    hook._process_spark_submit_log(iter(said))
    hook.on_kill()
    assert client.delete_namespaced_pod.call_args.args == ("slshudi-append-a-0123-driver", "lake")


def test_without_a_connection_nothing_is_submitted_to_a_default_master(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SPARK, raising=False)
    with pytest.raises(ConnectionMissing, match="'spark_default'"):
        SparkLauncher("spark_default").run(Verb.APPEND, order_without_batch(Path("/none")), {})
