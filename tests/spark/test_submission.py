"""What each master is asked for: executors' code, a secret between driver and executors, and nothing of loopback."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.spark.launch import RESIDENT, Submission, submission
from airflow_provider_slshudi.spark.python_archive import EXPECTED
from airflow_provider_slshudi.spark.runtime import DAEMON
from tests.pipelines import ad_events

ARCHIVE = "hdfs:///apps/slshudi.tar.gz"
STANDALONE, YARN, KUBERNETES = "spark://master:7077", "yarn", "k8s://https://master:6443"
SECRET = ("spark.authenticate", "spark.network.crypto.enabled")


def asked(master: str, verb: Verb = Verb.APPEND, cluster: bool = False, **spark: object) -> Submission:
    described = ad_events(Path("/lake/ad_events"), spark=spark).model_dump(mode="json")
    return submission(verb, JobOrder(described, instant="20260101000000000"), master, cluster)


def conf(master: str, verb: Verb = Verb.APPEND, cluster: bool = False, **spark: object) -> dict[str, str]:
    return asked(master, verb, cluster, **spark).conf


@pytest.mark.parametrize("verb", [Verb.APPEND, Verb.VERIFY, Verb.CLUSTER])
@pytest.mark.parametrize("master", [STANDALONE, YARN, KUBERNETES])
def test_executors_of_a_cluster_are_told_what_the_driver_has_and_where_to_take_it(master: str, verb: Verb) -> None:
    made = conf(master, verb, archive=ARCHIVE)
    assert made["spark.archives"] == f"{ARCHIVE}#slshudi"
    assert made["spark.executorEnv.PYTHONPATH"] == "slshudi"
    assert made["spark.pyspark.python"] == f"python{sys.version_info.major}.{sys.version_info.minor}"
    assert made["spark.pyspark.driver.python"] == sys.executable
    assert made[f"spark.executorEnv.{EXPECTED}"] and made["spark.python.daemon.module"] == DAEMON
    assert not [key for key in made if key in ("spark.driver.host", "spark.driver.bindAddress")]


@pytest.mark.parametrize("verb", [Verb.APPEND, Verb.VERIFY])
@pytest.mark.parametrize("master, has", [(STANDALONE, False), (YARN, True), (KUBERNETES, True), ("local[2]", True)])
def test_spark_makes_a_secret_where_it_can(master: str, has: bool, verb: Verb) -> None:
    """On a standalone cluster all have the secret of its operator, or none can connect."""
    made = conf(master, verb)
    assert [made.get(key) for key in SECRET] == ["true" if has else None] * 2


@pytest.mark.parametrize("master, here", [("local[2]", True), (RESIDENT, True), (STANDALONE, False), (YARN, False)])
def test_spark_looks_this_machines_name_up_only_where_others_have_to_reach_it(master: str, here: bool) -> None:
    assert asked(master).environment.get("SPARK_LOCAL_IP") == ("127.0.0.1" if here else None)


def test_executors_with_the_package_installed_are_compared_too() -> None:
    made = conf(YARN)
    assert made[f"spark.executorEnv.{EXPECTED}"]
    assert "spark.archives" not in made and "spark.executorEnv.PYTHONPATH" not in made


def test_this_machine_is_not_compared_with_itself() -> None:
    assert f"spark.executorEnv.{EXPECTED}" not in conf("local[2]")


def test_what_a_pipeline_asks_for_comes_beside_what_tasks_need() -> None:
    asked = {
        "spark.pyspark.python": "/opt/python",
        "spark.archives": "/mine.zip#mine",
        "spark.executorEnv.PYTHONPATH": "mine",
        "spark.python.use.daemon": "false",
        "spark.python.daemon.module": "mine",
    }
    made = conf(YARN, archive=ARCHIVE, conf=asked)
    assert made["spark.pyspark.python"] == "/opt/python"
    assert made["spark.archives"] == f"{ARCHIVE}#slshudi,/mine.zip#mine"
    assert made["spark.executorEnv.PYTHONPATH"] == "slshudi:mine"
    assert (made["spark.python.daemon.module"], made["spark.python.use.daemon"]) == (DAEMON, "true")


@pytest.mark.parametrize("verb", [Verb.APPEND, Verb.VERIFY, Verb.CLUSTER])
@pytest.mark.parametrize(
    "master, names", [(YARN, "spark.yarn.appMasterEnv."), (KUBERNETES, "spark.kubernetes.driverEnv.")]
)
def test_a_driver_in_cluster_mode_has_what_executors_have_and_nothing_of_this_machine(
    master: str, names: str, verb: Verb
) -> None:
    made = asked(master, verb, cluster=True, archive=ARCHIVE)
    conf = made.conf
    of_driver = {key.removeprefix(names): value for key, value in conf.items() if key.startswith(names)}
    of_executors = "spark.executorEnv."
    assert of_driver == {
        key.removeprefix(of_executors): value for key, value in conf.items() if key.startswith(of_executors)
    }
    assert {EXPECTED, "PYTHONPATH", "LC_ALL", "TZ"} <= set(of_driver)
    assert conf["spark.submit.deployMode"] == "cluster" and conf["spark.yarn.maxAppAttempts"] == "1"
    assert conf["spark.archives"] == f"{ARCHIVE}#slshudi" and "hudi" in conf["spark.jars"]
    assert [conf.get(key) for key in SECRET] == ["true"] * 2
    here = [key for key, value in conf.items() if sys.prefix in value or "SharedArchiveFile" in value]
    assert here in ([], ["spark.jars"]), "spark-submit sends the jars along"
    assert not [key for key in conf if key in ("spark.driver.host", "spark.driver.extraClassPath")]


def test_a_pipeline_that_asks_for_client_mode_or_attempts_in_cluster_mode_does_not_get_them() -> None:
    asked = {
        "spark.submit.deployMode": "client",
        "spark.yarn.maxAppAttempts": "4",
        "spark.yarn.appMasterEnv.PYTHONPATH": "mine",
        "spark.yarn.appMasterEnv.AWS_REGION": "eu",
        "spark.jars": "hdfs:///apps/hudi.jar",
    }
    made = conf(YARN, cluster=True, archive=ARCHIVE, conf=asked)
    assert (made["spark.submit.deployMode"], made["spark.yarn.maxAppAttempts"]) == ("cluster", "1")
    assert made["spark.yarn.appMasterEnv.PYTHONPATH"] == "slshudi:mine"
    assert made["spark.yarn.appMasterEnv.AWS_REGION"] == "eu"
    assert made["spark.jars"] == "hdfs:///apps/hudi.jar", "a file that is there already is not sent each time"


@pytest.mark.parametrize("verb", [Verb.COMMIT, Verb.APPEND, Verb.VERIFY])
def test_a_quarantine_alone_in_a_store_brings_the_stores_jars(verb: Verb) -> None:
    pipeline = ad_events(Path("/lake/ad_events"), quarantine={"path": "s3a://lake/aside"})
    order = JobOrder(pipeline.model_dump(mode="json"), instant="20260101000000000")
    made = submission(verb, order, "local[2]").conf
    assert "hadoop-aws" in made["spark.driver.extraClassPath"]
    assert any(key.startswith("spark.hadoop.fs.s3a") for key in made)
