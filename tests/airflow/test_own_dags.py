"""DAGs that users make of our operators: pipelines made in Python, connections of other names, inputs as arguments."""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from airflow.serialization.serialized_objects import DagSerialization

from airflow_provider_slshudi import (
    Pipeline,
    SlsHudiAppendOperator,
    SlsHudiBackfillPlanOperator,
    SlsHudiBatchOperator,
    SlsHudiCommitOperator,
    SlsHudiOpenOperator,
    SlsHudiPlanOperator,
    SlsHudiRecoverOperator,
    SlsHudiRepairOperator,
    backfill_dag,
    fleet_dag,
    maintenance_dag,
    micro_batch,
    override_dag,
    recovery_dag,
    repair_dag,
    settings,
    tail_dag,
    verify_dag,
    watch_dag,
)
from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.handover.job_order import Verb
from airflow_provider_slshudi.hooks.connections import ConnectionMissing
from airflow_provider_slshudi.hooks.ledger import LedgerHook
from airflow_provider_slshudi.hooks.work import work_of
from airflow_provider_slshudi.transaction.context import Run
from tests.airflow.operators.conftest import put  # noqa: F401  a logstore of the test's own
from tests.airflow.operators.runs import in_run
from tests.machine import ROOT, connection, write_pipeline

FACTORIES = (tail_dag, backfill_dag, recovery_dag, repair_dag, override_dag, verify_dag, maintenance_dag, watch_dag)
OTHERS: dict[str, Any] = {"sls_conn_id": "my_sls", "spark_conn_id": "my_spark", "ledger_conn_id": "my_ledger"}


def _any(task: Any) -> Any:
    """A task with attributes of its own class."""
    return task


@pytest.fixture
def made(pipelines: Path) -> Pipeline:
    """The example's pipeline as a program makes it; there is no file any more."""
    file = pipelines / "ad_events.yaml"
    described = yaml.safe_load(file.read_text(encoding="utf-8"))
    file.unlink()
    return Pipeline(**described)


@pytest.mark.parametrize("factory", FACTORIES)
def test_every_factory_takes_a_pipeline_that_is_made_in_python(
    made: Pipeline, factory: Callable[..., DAG], pipelines: Path
) -> None:
    dag = factory(made, **OTHERS)
    assert dag.dag_id.startswith("ad_events_") and dag.tasks
    for task in map(_any, dag.tasks):
        assert (task.pipeline, {name: getattr(task, name) for name in OTHERS}) == (made, OTHERS), task.task_id
        assert {"pipeline", *settings.CONNECTIONS} <= {*task.template_fields}
    # As Airflow's DAG processor stores it.
    stored = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert [*stored.task_dict] == [*dag.task_dict]
    assert pickle.loads(pickle.dumps(made)) == made  # noqa: S301


def test_connections_of_a_dag_reach_each_of_its_tasks(pipelines: Path) -> None:
    for factory in FACTORIES:
        for task in map(_any, factory("ad_events", default_args=OTHERS).tasks):
            assert {name: getattr(task, name) for name in OTHERS} == OTHERS, task.task_id


def test_a_batch_stands_between_tasks_of_ones_own(made: Pipeline) -> None:
    from airflow.providers.standard.operators.empty import EmptyOperator

    with DAG("mine", schedule=None, start_date=datetime(2026, 1, 1)) as dag:
        EmptyOperator(task_id="before") >> micro_batch(made, **OTHERS) >> EmptyOperator(task_id="after")
    assert dag.get_task("batch.settle").upstream_task_ids == {"before"}
    assert dag.get_task("after").upstream_task_ids == {"batch.commit"}
    assert _any(dag.get_task("batch.append")).spark_conn_id == "my_spark"


def test_a_plan_asks_the_connections_that_are_named(
    put: Callable[[int], None],  # noqa: F811
    ledger_connection: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(3)
    monkeypatch.setenv("AIRFLOW_CONN_MY_SLS", os.environ["AIRFLOW_CONN_SLS_DEFAULT"])
    monkeypatch.delenv("AIRFLOW_CONN_SLS_DEFAULT")
    ledger = connection("slshudi_ledger", schema=str(tmp_path / "mine.db"), extra={"dialect": "sqlite"})
    monkeypatch.setenv("AIRFLOW_CONN_MY_LEDGER", ledger)
    pipeline = settings.pipeline("ad_events")
    planned = SlsHudiPlanOperator(task_id="plan", pipeline=pipeline, **OTHERS).execute(in_run())
    assert sum(map(len, LedgerHook("my_ledger").ledger().ranges(planned["transaction"]))) == 3
    assert LedgerHook().ledger().pipelines() == [], "the other ledger was not asked"
    work = work_of(pipeline, Run("mine", "1"), connections=settings.Connections(**OTHERS))
    assert (work.pipeline.source.connection, work.pipeline.spark.connection) == ("my_sls", "my_spark")
    with pytest.raises(ConnectionMissing, match="no connection 'sls_default'"):
        work_of(pipeline, Run("mine", "1")).connect()


def test_a_failed_task_tells_the_ledger_that_it_names(
    pipelines: Path, ledger_connection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = connection("slshudi_ledger", schema=str(tmp_path / "mine.db"), extra={"dialect": "sqlite"})
    monkeypatch.setenv("AIRFLOW_CONN_MY_LEDGER", ledger)
    (pipelines / "ad_events.yaml").write_text("name: ad_events\n", encoding="utf-8")
    task = SlsHudiPlanOperator(task_id="plan", pipeline="ad_events", ledger_conn_id="my_ledger")
    with pytest.raises(AirflowFailException, match="source: Field required"):
        task.execute(in_run())
    assert [trouble.step for trouble in LedgerHook("my_ledger").ledger().troubles()] == ["plan"]
    assert LedgerHook().ledger().troubles() == []


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({}, {"AWS_SESSION_TOKEN": None, "AWS_REGION": "of-the-machine"}),
        (
            {"aws_session_token": "token", "region_name": "cn-hangzhou", "endpoint_url": "https://s3.example"},
            {"AWS_SESSION_TOKEN": "token", "AWS_REGION": "cn-hangzhou", "AWS_ENDPOINT_URL": "https://s3.example"},
        ),
    ],
    ids=["keys alone", "all"],
)
def test_an_object_stores_keys_come_from_a_connection(
    made: Pipeline,
    ledger_connection: Path,
    monkeypatch: pytest.MonkeyPatch,
    extra: Mapping[str, str],
    expected: Mapping[str, str | None],
) -> None:
    for name, value in {"AWS_SESSION_TOKEN": "of another key", "AWS_REGION": "of-the-machine"}.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("AIRFLOW_CONN_STORE", connection("aws", login="key", password="secret", extra={**extra}))
    work_of(made, Run("mine", "1"), connections=settings.Connections(storage_conn_id="store"))
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    assert {name: os.environ.get(name) for name in {**keys, **expected}} == {**keys, **expected}


def test_a_stores_keys_are_for_the_task_that_names_them(
    made: Pipeline, ledger_connection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of `dag.test()` runs the tasks of a DAG one after the other."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.setenv(name, "the machine's")
    elsewhere = {"endpoint_url": "https://s3.example"}
    monkeypatch.setenv("AIRFLOW_CONN_ONE", connection("aws", login="one", password="secret", extra=elsewhere))
    monkeypatch.setenv("AIRFLOW_CONN_TWO", connection("aws", login="two", password="secret"))
    for conn_id, expected in (("one", ("one", "https://s3.example")), ("two", ("two", "the machine's")), (None, None)):
        work_of(made, Run("mine", "1"), connections=settings.Connections(storage_conn_id=conn_id))
        now = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_ENDPOINT_URL"]
        assert now == (expected or ("the machine's", "the machine's"))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"login": "key"}, "one is missing"),
        ({"login": "key", "password": "secret", "extra": {"role_arn": "arn"}}, "extra role_arn means nothing here"),
        ({"login": "key", "password": "secret", "host": "s3.example"}, "host means nothing here"),
    ],
)
def test_a_store_connection_that_would_not_be_used_whole_is_refused(
    made: Pipeline, ledger_connection: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any], message: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_STORE", connection("aws", **wrong))
    with pytest.raises(ConfigError, match=message) as refused:
        work_of(made, Run("mine", "1"), connections=settings.Connections(storage_conn_id="store"))
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "operator", [SlsHudiOpenOperator, SlsHudiAppendOperator, SlsHudiCommitOperator, SlsHudiRepairOperator]
)
def test_retries_that_a_step_cannot_have_are_refused(operator: type, pipelines: Path) -> None:
    arguments = {} if operator is SlsHudiRepairOperator else {"transaction": None}
    with pytest.raises(ConfigError, match="retries=2: this step has none: "):
        operator(task_id="step", pipeline="ad_events", retries=2, **arguments)
    # Those of a DAG are for its other tasks, also where the step is mapped.
    with DAG("mine", schedule=None, start_date=datetime(2026, 1, 1), default_args={"retries": 2}):
        assert operator(task_id="step", pipeline="ad_events", **arguments).retries == 0
        mapped = _any(operator).partial(task_id="mapped", **arguments).expand(pipeline=["ad_events"])
    assert mapped.unmap({"pipeline": "ad_events"}).retries == 0


def test_retries_of_a_fleets_task_are_refused(pipelines: Path) -> None:
    with pytest.raises(ConfigError, match="retries=1: this step has none"):
        SlsHudiBatchOperator(task_id="batch", pipeline="ad_events", retries=1)


def test_a_fleet_names_files(made: Pipeline) -> None:
    with pytest.raises(ConfigError, match="give names or files, not `Pipeline` objects"):
        fleet_dag([made])  # type: ignore[list-item]


def test_a_backfill_takes_its_cursors_from_arguments_unless_the_run_names_some(
    put: Callable[[int], None],  # noqa: F811
) -> None:
    put(6)
    SlsHudiPlanOperator(task_id="plan", pipeline="ad_events").execute(in_run())
    ledger = LedgerHook().ledger()
    for live in ledger.live("ad_events"):
        ledger.aborted(live.id, live.token, "to be read again")
    (shard,) = ledger.shards("ad_events")
    begin = shard.first

    def plan(run: str, **params: Any) -> int:
        cursors = {str(shard.id): [str(begin), str(begin + 2)]}
        task = SlsHudiBackfillPlanOperator(task_id="plan", pipeline="ad_events", cursors=cursors)
        planned = task.execute(in_run(("backfill", run), **params))
        return sum(map(len, ledger.ranges(planned["transaction"])))

    assert plan("run-1") == 2
    assert plan("run-2", cursors={str(shard.id): [str(begin + 2), str(begin + 6)]}) == 4


def test_recovery_takes_its_transactions_from_arguments(put: Callable[[int], None]) -> None:  # noqa: F811
    put(1)
    planned = SlsHudiPlanOperator(task_id="plan", pipeline="ad_events").execute(in_run())
    id_ = planned["transaction"]
    states = {"tail/run-1": "running"}
    left = SlsHudiRecoverOperator(task_id="recover", pipeline="ad_events").execute(
        in_run(("recovery", "run-1"), states)
    )
    assert [item["transaction"] for item in left["left"]] == [id_]
    named = SlsHudiRecoverOperator(task_id="recover", pipeline="ad_events", transactions=[id_])
    done = named.execute(in_run(("recovery", "run-2"), states))
    assert [item["transaction"] for item in done["settled"]] == [id_]


def test_the_manuals_dags_are_dags(
    pipelines: Path, tmp_path: Path, ledger_connection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block of code of the page, one after the other as in one DAG file."""
    write_pipeline(pipelines / "clicks.yaml", tmp_path / "lake" / "clicks", name="clicks")
    page = (ROOT / "docs" / "own-dags.md").read_text(encoding="utf-8")
    blocks = [dedent(block) for block in re.findall(r"(?:^    .*\n|^\n(?=    ))+", page, re.MULTILINE)]
    assert len(blocks) == 5
    names: dict[str, Any] = {}
    exec("from airflow_provider_slshudi import *", names)  # noqa: S102
    with DAG("one_by_one", schedule=None, start_date=datetime(2026, 1, 1)):
        for block in blocks:
            exec(block, names)  # noqa: S102 - the page's own
    assert names["tail"].get_task("batch.plan").sls_conn_id == "sls_east"
    assert names["north_tail"].dag_id == "orders_north_tail" and names["south_tail"].dag_id == "orders_south_tail"
    assert names["dag"].get_task("after").upstream_task_ids == {"batch.commit"}
    assert names["plan"].downstream_task_ids >= {"open"}
    assert names["done"].upstream_task_ids == {"take", "aggregate"}


def test_a_driver_in_cluster_mode_gets_no_keys_of_a_connection(
    made: Pipeline, ledger_connection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_STORE", connection("aws", login="key", password="secret"))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", connection("spark", host="yarn", extra={"deploy-mode": "cluster"}))
    work = work_of(made, Run("mine", "1"), connections=settings.Connections(storage_conn_id="store"))
    with pytest.raises(ConfigError, match="gets no keys of a `storage_conn_id`"):
        work.launcher.run(Verb.APPEND, work.order(), {})
