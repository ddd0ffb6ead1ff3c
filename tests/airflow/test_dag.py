"""DAG files: what the factories make of a pipeline, and what a wrong pipeline looks like in Airflow."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pendulum
import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG, CronTriggerTimetable
from airflow.sdk.definitions.param import process_params
from airflow.timetables.simple import ContinuousTimetable

from airflow_provider_slshudi import partitions_asset, settings
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.dag.factories import micro_batch, tail_dag
from airflow_provider_slshudi.dag.operations import (
    backfill_dag,
    maintenance_dag,
    operations_dag,
    override_dag,
    recovery_dag,
    repair_dag,
    verify_dag,
)
from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.handover.names import Act
from airflow_provider_slshudi.operators.events import settled_alias, table_asset
from airflow_provider_slshudi.sensors.settle import SlsHudiSettleSensor
from tests.machine import ROOT, write_hourly, write_pipeline

ROLES = ("tail", "backfill", "recovery", "repair", "override", "verify", "maintenance", "operations", "watch")
STEPS = ["settle", "plan", "open", "append", "record", "commit"]


def in_order(dag: DAG) -> list[str]:
    return [task.task_id for task in dag.topological_sort()]  # type: ignore[no-untyped-call]  # of Airflow's


def schedule(dag: DAG) -> object:
    """Airflow's annotation leaves out the intervals and None that it takes and keeps."""
    return dag.schedule


def test_the_example_dags_parse() -> None:
    bag = DagBag(str(ROOT / "dags"))
    assert bag.import_errors == {}
    behind = {f"ad_impressions_{role}" for role in ("tail", "hourly", "pandas", "duckdb", "spark", "dbt", "report")}
    assert set(bag.dags) == {*(f"ad_events_{role}" for role in ROLES), "ad_fleet", "ad_users_operators", *behind}
    assert {Path(dag.fileloc).parent for dag in bag.dags.values()} == {ROOT / "dags"}


def test_the_tail_strings_the_steps_and_other_runs_wait_for_the_first(pipelines: Path) -> None:
    dag = tail_dag("ad_events", tags=["mine"], default_args={"retries": 5})
    assert in_order(dag) == [f"batch.{step}" for step in STEPS]
    assert (schedule(dag), dag.max_active_runs, dag.catchup) == (timedelta(seconds=30), 3, False)
    assert dag.tags == {"mine", "slshudi", "slshudi:ad_events"}, "by its tags the pages know whose DAG it is"
    retries = {task.task_id: task.retries for task in dag.tasks}
    drivers = {retries.pop(f"batch.{step}") for step in ("open", "append", "commit")}
    assert drivers == {0}, "what a driver left is decided by settle"
    assert set(retries.values()) == {5}


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "America/New_York"), ({"timezone": "Asia/Shanghai"}, "Asia/Shanghai")],
    ids=["of-airflow", "of-the-file"],
)
def test_cron_runs_in_the_zone_of_the_file_or_of_airflow(
    pipelines: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], expected: str
) -> None:
    monkeypatch.setattr("airflow.settings.TIMEZONE", pendulum.timezone("America/New_York"))
    file, cron = pipelines / "ad_events.yaml", "0 6 * * *"
    write_pipeline(file, pipelines / "lake", schedule=cron, maintenance={"schedule": cron}, **given)
    for dag in (tail_dag("ad_events"), maintenance_dag("ad_events")):
        timetable = CronTriggerTimetable(cron, timezone=dag.timezone)
        assert (dag.timezone.name, dag.timetable) == (expected, timetable)
    write_pipeline(file, pipelines / "lake", timezone="Peking")
    with pytest.raises(ConfigError, match="expected an IANA time zone"):
        tail_dag("ad_events")


def test_where_a_run_follows_the_one_before_at_once_its_plan_waits_for_news(pipelines: Path) -> None:
    waits = [
        getattr(tail_dag("ad_events", **given).task_dict["batch.plan"], "wait", None)
        for given in ({}, {"schedule": "@continuous"}, {"schedule": ContinuousTimetable()})
    ]
    assert waits == [timedelta(), timedelta(minutes=10), timedelta(minutes=10)]


def test_where_a_lateness_is_declared_the_last_task_tells_what_is_complete(pipelines: Path) -> None:
    write_hourly(pipelines / "ad_events.yaml", pipelines / "lake", mirror={"delta": {}})
    dag = tail_dag("ad_events")
    task = dag.task_dict["partitions"]
    assert task.upstream_task_ids == {"batch.mirror"}, "readers of the mirror have the commit by then"
    # Also where the plan skipped; not where the commit failed, whose run is to fail.
    assert task.trigger_rule == "none_failed"
    assert {getattr(outlet, "uri", outlet.name) for outlet in task.outlets} == {
        partitions_asset("ad_events").uri,
        "hudi_ad_events_completed",
    }
    assert task.max_active_tis_per_dag == 1, "the next one looks once Airflow has this one's events"
    plan = tail_dag("ad_events", schedule="@continuous").task_dict["batch.plan"]
    assert getattr(plan, "wait", None) == timedelta(minutes=1)
    write_hourly(pipelines / "ad_events.yaml", pipelines / "lake", mirror={"delta": {}}, batch={"drain": "1h"})
    assert tail_dag("ad_events").task_dict["partitions"].upstream_task_ids == {"batch.mirror", "drain"}


def test_where_airflow_or_a_time_out_leaves_no_room_to_wait_there_is_one_run(pipelines: Path) -> None:
    limit = timedelta(minutes=15)
    assert tail_dag("ad_events", schedule="@continuous").max_active_runs == 1
    assert tail_dag("ad_events", schedule=ContinuousTimetable()).max_active_runs == 1
    assert tail_dag("ad_events", dagrun_timeout=limit).max_active_runs == 1
    assert tail_dag("ad_events", dagrun_timeout=limit, max_active_runs=2).max_active_runs == 2


def test_a_dags_arguments_say_how_settle_waits(pipelines: Path) -> None:
    given = {"deferrable": True, "poke_interval": 60, "mode": "poke"}
    for arguments, found in ((None, ("reschedule", False, 15)), (given, ("poke", True, 60))):
        settle = tail_dag("ad_events", default_args=arguments).get_task("batch.settle")
        assert isinstance(settle, SlsHudiSettleSensor)
        assert (settle.mode, settle.deferrable, settle.poke_interval) == found


def test_a_dag_of_ones_own_takes_several_pipelines(pipelines: Path) -> None:
    with DAG("mine") as dag:
        micro_batch(str(pipelines / "ad_events.yaml"), group_id="first")
        micro_batch("ad_events", group_id="second")
    assert len(dag.tasks) == 12


def test_a_backfill_is_started_by_hand_with_params(pipelines: Path) -> None:
    dag = backfill_dag("ad_events")
    assert dag.schedule is None
    assert set(dag.params) == {"cursors", "from", "to", "everything", "dry_run"}
    assert in_order(dag) == [*(f"batch.{step}" for step in STEPS), "rest"]


def test_acts_that_may_lose_data_have_a_dag_of_their_own(pipelines: Path) -> None:
    harmless, others = (make("ad_events").params.get_param("act") for make in (repair_dag, override_dag))
    assert harmless.schema["enum"] == ["recover", "break-lease", "rebuild-metadata", "replay", "dismiss"]
    assert {*harmless.schema["enum"], *others.schema["enum"]} == {*(act.value for act in Act), None}
    assert (harmless.value, others.value) == ("recover", None), "nothing is proposed that may lose data"
    assert "accept_gap" not in tail_dag("ad_events").params


def test_a_proof_is_started_by_hand_and_asks_the_service_only_where_it_is_told_to(pipelines: Path) -> None:
    dag = verify_dag("ad_events")
    assert (schedule(dag), dag.task_ids) == (None, ["verify"])
    assert dag.params.dump() == {"source": False}


def test_maintenance_cleans_before_it_archives_and_clusters_beside_on_a_schedule_of_its_own(pipelines: Path) -> None:
    dag = maintenance_dag("ad_events")
    assert (schedule(dag), dag.max_active_runs) == (timedelta(hours=1), 1)
    assert {task.task_id: task.downstream_task_ids for task in dag.tasks} == {
        "clean": {"archive"},
        "archive": set(),
        "cluster": set(),
    }
    # What a try that died left is on the timeline and is carried on, so trying again is safe.
    assert {task.retries for task in dag.tasks} == {2}
    file = pipelines / "ad_events.yaml"
    described = yaml.safe_load(file.read_text(encoding="utf-8"))
    file.write_text(yaml.safe_dump({**described, "maintenance": {"clustering": None}}), encoding="utf-8")
    assert maintenance_dag("ad_events").task_ids == ["clean", "archive"]
    keyed = {**described["table"], "type": "merge_on_read", "upsert": {"record_key": "event_id", "buckets": 2}}
    file.write_text(yaml.safe_dump({**described, "table": keyed}), encoding="utf-8")
    assert maintenance_dag("ad_events").task_ids == ["clean", "archive", "compact"]


def test_one_dag_does_what_four_do_and_its_schedule_maintains(pipelines: Path, tmp_path: Path) -> None:
    dag = operations_dag("ad_events")
    assert schedule(dag) == timedelta(hours=1)
    four = [make("ad_events") for make in (backfill_dag, verify_dag, repair_dag, maintenance_dag)]
    assert {*dag.task_ids} == {"choose", *(task for one in four for task in one.task_ids)}
    assert {*dag.params} == {"act", *(name for one in four for name in one.params)}
    asked = dag.params.get_param("act")
    assert asked.value == "maintenance"
    assert asked.schema["enum"] == ["maintenance", "backfill", "verify", *(a.value for a in Act if not a.may_lose)]
    alone = ("clean", "archive", "cluster", "repair", "verify", "batch.append")
    assert {dag.get_task(name).max_active_tis_per_dag for name in alone} == {1}, "as where runs come one at a time"
    write_pipeline(pipelines / "ad_users.yaml", tmp_path / "keyed")
    keyed = operations_dag("ad_users")
    assert "verify" not in keyed.task_ids and "source" not in keyed.params, "a row does not tell which log it is of"


@pytest.mark.parametrize(
    ("conf", "tasks"),
    [
        ({}, ["clean", "cluster"]),
        ({"act": "backfill", "everything": True}, ["batch.settle"]),
        ({"act": "verify", "source": True}, ["verify"]),
        ({"act": "recover", "reason": "why"}, ["repair"]),
        ({"act": "dismiss"}, ["repair"]),
    ],
)
def test_a_run_of_operations_does_what_it_was_asked_for(
    pipelines: Path, conf: dict[str, Any], tasks: list[str]
) -> None:
    assert sorted(chosen(conf)) == tasks


@pytest.mark.parametrize(
    "conf",
    [
        {"everything": True},
        {"act": "verify", "from": "2026-01-01T00:00:00Z"},
        {"act": "recover", "source": True},
        {"act": "backfill", "everything": True, "reason": "why"},
        {"transaction": "01"},
    ],
)
def test_a_run_of_operations_that_names_another_acts_params_does_nothing(pipelines: Path, conf: dict[str, Any]) -> None:
    with pytest.raises(AirflowFailException, match=r"Nothing was done; trigger it again with the `act` that you mean"):
        chosen(conf)


@pytest.mark.parametrize("conf", [{"Act": "backfill"}, {"action": "verify"}, {"transactions": ["01"]}])
def test_a_run_of_operations_whose_params_are_misspelt_does_no_maintenance_instead(
    pipelines: Path, conf: dict[str, Any]
) -> None:
    with pytest.raises(AirflowFailException, match="but the DAG's params are act, cursors"):
        chosen(conf)


def test_where_airflow_leaves_a_runs_params_aside_operations_does_nothing_else_instead(
    pipelines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__DAG_RUN_CONF_OVERRIDES_PARAMS", "False")
    with pytest.raises(AirflowFailException, match=r"act: 'verify': .*dag_run_conf_overrides_params is off"):
        chosen({"act": "verify"})


def test_operations_take_a_dag_files_arguments_as_maintenance_does(pipelines: Path) -> None:
    assert operations_dag("ad_events", schedule="@continuous").max_active_runs == 1
    assert sorted(chosen({}, params={"mine": 1})) == ["clean", "cluster"]
    assert operations_dag("ad_events", default_args={"retries": 5}).get_task("choose").retries == 5


def chosen(conf: dict[str, Any], **dag_kwargs: Any) -> list[str]:
    """What a run that is given this goes on with, as Airflow makes its params."""
    dag = operations_dag("ad_events", **dag_kwargs)
    choose: Any = dag.get_task("choose")
    params = process_params(dag, choose, conf, suppress_exception=False)
    return [*choose.python_callable(**choose.op_kwargs, params=params, dag_run=SimpleNamespace(conf=conf), dag=dag)]


def test_the_commit_updates_the_tables_asset(pipelines: Path, tmp_path: Path) -> None:
    (table,) = tail_dag("ad_events").get_task("batch.commit").outlets
    assert table.uri == f"hudi://localhost{tmp_path}/lake/ad_events"
    elsewhere = settings.pipeline("ad_events").model_dump()
    for path, uri in (
        ("s3a://bucket/lake/ads", "hudi://bucket/lake/ads"),
        ("oss://bucket/lake/ads", "hudi://bucket/lake/ads"),
        ("file:/lake/ads", "hudi://localhost/lake/ads"),
    ):
        elsewhere["table"]["path"] = path
        assert table_asset(Pipeline.model_validate(elsewhere)).uri == uri


def test_settle_and_recovery_update_it_through_an_alias_which_says_nothing_by_itself(pipelines: Path) -> None:
    alias = [settled_alias(settings.pipeline("ad_events"))]
    assert alias[0].name == "hudi_ad_events_settled"
    for make, task in ((tail_dag, "batch.settle"), (backfill_dag, "batch.settle"), (recovery_dag, "recover")):
        dag = make("ad_events")
        assert dag.get_task(task).outlets == alias
        assert {other.task_id for other in dag.tasks if other.outlets} <= {task, "batch.commit"}


def test_a_catalog_is_told_of_each_commit(pipelines: Path) -> None:
    with (pipelines / "ad_events.yaml").open("a", encoding="utf-8") as file:
        file.write("\ncatalog: {metastore: thrift://metastore:9083}\n")
    dag = tail_dag("ad_events")
    assert in_order(dag) == [f"batch.{step}" for step in (*STEPS, "sync")]
    assert dag.get_task("batch.sync").retries == 2


def test_mirrors_follow_each_commit_and_each_clustering(pipelines: Path) -> None:
    with (pipelines / "ad_events.yaml").open("a", encoding="utf-8") as file:
        file.write("\nmirror: {delta: {}}\n")
    dag = tail_dag("ad_events")
    assert in_order(dag) == [f"batch.{step}" for step in (*STEPS, "mirror")]
    task = dag.get_task("batch.mirror")
    assert task.retries == 2 and "MirrorFailed" in (task.doc_md or "")
    maintenance = maintenance_dag("ad_events")
    assert maintenance.get_task("mirror").upstream_task_ids == {"cluster"}


def test_a_wrong_pipeline_is_an_import_error_with_file_and_line(pipelines: Path, tmp_path: Path) -> None:
    file = pipelines / "ad_events.yaml"
    lines = file.read_text(encoding="utf-8").splitlines()
    line = lines.index("name: ad_events")
    lines[line] = "name: 'ad events'"
    file.write_text("\n".join(lines), encoding="utf-8")
    dags = tmp_path / "dags"
    dags.mkdir()
    (dags / "tail.py").write_text((ROOT / "dags" / "slshudi_tail.py").read_text(encoding="utf-8"), encoding="utf-8")
    (message,) = DagBag(str(dags)).import_errors.values()
    assert f"{file} line {line + 1}: name: 'ad events'" in message


def test_a_missing_pipeline_names_those_that_there_are(pipelines: Path) -> None:
    with pytest.raises(ConfigError, match=rf"no pipeline 'ad_evnts'.*{pipelines}, which has ad_events"):
        tail_dag("ad_evnts")


def test_parsing_loads_nothing_heavy() -> None:
    code = (
        "import sys; from airflow_provider_slshudi import tail_dag; tail_dag(sys.argv[1]); "
        "rooms = [f'airflow_provider_slshudi.{room}' for room in ('sls', 'ledger', 'hudi', 'spark', 'transaction')]; "
        "print([name for name in ('pyarrow', 'pyspark', 'py4j', 'aliyun', 'alembic', 'numpy', *rooms)"
        " if name in sys.modules])"
    )
    example = str(ROOT / "dags" / "pipelines" / "ad_events.yaml")
    done = subprocess.run([sys.executable, "-c", code, example], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
