"""Pipelines in DAG bundles: found beside the DAG file that names them, by the worker too, and by the command line."""

from __future__ import annotations

import json
import runpy
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.dag_processing.dagbag import BundleDagBag, DagBag
from airflow.sdk import DAG, BaseOperator, Context
from airflow.serialization.serialized_objects import DagSerialization

from airflow_provider_slshudi import cli, settings
from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.operators.base import PipelineOperator
from tests.machine import write_pipeline

TAIL = 'from airflow_provider_slshudi import tail_dag\n\ndag = tail_dag("ad_events")\n'
LOOP = """
from airflow_provider_slshudi.dag.factories import tail_dag

for name in ("a", "b"):
    tail_dag(name)
"""
MAPPED = """
from airflow.sdk import DAG
from airflow_provider_slshudi.operators.maintenance import SlsHudiVerifyOperator

with DAG("proofs"):
    SlsHudiVerifyOperator.partial(task_id="verify").expand(pipeline=["a", "b"])
"""


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, ledger_connection: Path) -> None:
    """No pipelines folder, a ledger for tasks; what Airflow and the command set for their process is undone."""
    monkeypatch.delenv("AIRFLOW__SLSHUDI__PIPELINES_FOLDER", raising=False)
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
    monkeypatch.setenv("AIRFLOW__LOGGING__LOGGING_LEVEL", "WARNING")
    monkeypatch.setattr(sys, "path", [*sys.path])


def put(file: Path, text: str = TAIL) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def describe(file: Path, name: str) -> Path:
    """A pipeline file whose pipeline, and with it the DAGs, are called `name`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_pipeline(file, file.parent / "lake", name=name)
    return file


def parsed(bundle: Path, dag_file: str = "") -> BundleDagBag:
    """What Airflow's DAG processor, or a task, makes of a bundle or of one of its DAG files."""
    return BundleDagBag(str(bundle / dag_file), bundle_path=bundle, bundle_name=bundle.name)


def configure(monkeypatch: pytest.MonkeyPatch, *bundles: Path) -> None:
    """These folders as bundles, and one that cannot be made."""
    local = "airflow.dag_processing.bundles.local.LocalDagBundle"
    configured = [{"name": path.name, "classpath": local, "kwargs": {"path": str(path)}} for path in bundles]
    configured.append({"name": "unknown", "classpath": "tests.airflow.gitbundle.GitBundle", "kwargs": {}})
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps(configured))


def pipeline_of(task: Any) -> str:
    """The name of the pipeline that a task works with."""
    assert isinstance(task, PipelineOperator)
    return task.work(in_run(task.dag)).pipeline.name


def in_run(dag: DAG) -> Context:
    return cast(Context, {"dag": dag, "dag_run": SimpleNamespace(dag_id=dag.dag_id, run_id="run-1"), "params": {}})


def test_two_bundles_with_dag_files_of_one_name_have_a_pipeline_each(tmp_path: Path) -> None:
    for team in ("ads", "shop"):
        put(tmp_path / team / "tail.py")
        describe(tmp_path / team / "pipelines" / "ad_events.yaml", name=f"of_{team}")
    for team in ("ads", "shop"):
        bag = parsed(tmp_path / team)
        assert (bag.import_errors, bag.dag_ids) == ({}, [f"of_{team}_tail"])


@pytest.mark.parametrize(
    "place",
    ["team/daily/x.yaml", "team/daily/pipelines/x.yml", "team/pipelines/x.yaml", "pipelines/x.yaml"],
)
def test_a_pipeline_lies_beside_its_dag_file_or_further_up_in_the_bundle(tmp_path: Path, place: str) -> None:
    bundle = tmp_path / "bundle"
    put(bundle / "team" / "daily" / "tail.py", TAIL.replace("ad_events", "x"))
    describe(bundle / place, name="found")
    describe(tmp_path / "pipelines" / "x.yaml", name="outside")
    assert parsed(bundle).dag_ids == ["found_tail"]


def test_the_nearest_wins_and_two_that_are_equally_near_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "team" / "tail.py")
    describe(tmp_path / "pipelines" / "ad_events.yaml", name="of_all")
    near = describe(tmp_path / "team" / "pipelines" / "ad_events.yaml", name="of_the_team")
    assert parsed(tmp_path).dag_ids == ["of_the_team_tail"]
    second = describe(tmp_path / "team" / "ad_events.yaml", name="beside")
    (message,) = parsed(tmp_path).import_errors.values()
    assert f"{near}, {second}. Keep one" in message


def test_nothing_above_the_bundle_is_taken_and_the_error_says_where_it_was_looked_for(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    put(bundle / "team" / "tail.py")
    describe(tmp_path / "pipelines" / "ad_events.yaml", name="outside")
    describe(bundle / "pipelines" / "clicks.yaml", name="clicks")
    ((file, message),) = parsed(bundle).import_errors.items()
    assert file == "team/tail.py"
    places = [f"{bundle}/team/pipelines, which is not there", f"{bundle}/team, which has none"]
    assert "; ".join([*places, f"{bundle}/pipelines, which has clicks. "]) in message
    assert str(tmp_path / "pipelines") not in message


def test_a_wrong_pipeline_of_a_bundle_is_an_import_error_with_file_and_line(tmp_path: Path) -> None:
    put(tmp_path / "tail.py")
    file = put(tmp_path / "pipelines" / "ad_events.yaml", "name: ad events\n")
    ((_, message),) = parsed(tmp_path).import_errors.items()
    assert f"{file} line 1: name: 'ad events'" in message


def test_a_module_that_makes_the_dags_of_many_pipelines_takes_those_of_the_dag_file(tmp_path: Path) -> None:
    put(tmp_path / "made_in_a_loop.py", LOOP)
    put(tmp_path / "team" / "many.py", "import made_in_a_loop  # which makes DAGs for Airflow\n")
    for name in ("a", "b"):
        describe(tmp_path / "team" / "pipelines" / f"{name}.yaml", name=name)
    bag = parsed(tmp_path, "team/many.py")
    assert (bag.import_errors, sorted(bag.dag_ids)) == ({}, ["a_tail", "b_tail"])
    assert {dag.relative_fileloc for dag in bag.dags.values()} == {"team/many.py"}
    assert pipeline_of(bag.dags["b_tail"].get_task("batch.plan")) == "b"


def test_the_pipelines_of_dags_in_an_archive_lie_beside_the_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
        archive.writestr("packed_tail.py", TAIL)
        archive.writestr("pipelines/ad_events.yaml", "name: within\n")
    (message,) = parsed(tmp_path).import_errors.values()
    assert f"{tmp_path}/pipelines, which is not there" in message
    describe(tmp_path / "pipelines" / "ad_events.yaml", name="beside")
    bag = parsed(tmp_path)
    assert (bag.import_errors, bag.dag_ids) == ({}, ["beside_tail"])
    assert pipeline_of(bag.dags["beside_tail"].get_task("batch.plan")) == "beside"


def test_a_path_begins_at_the_dag_file(tmp_path: Path) -> None:
    put(tmp_path / "team" / "tail.py", TAIL.replace('"ad_events"', '"../shared/ad_events.yaml"'))
    describe(tmp_path / "shared" / "ad_events.yaml", name="shared")
    bag = parsed(tmp_path)
    assert bag.dag_ids == ["shared_tail"]
    assert pipeline_of(bag.dags["shared_tail"].get_task("batch.plan")) == "shared"


def test_the_one_folder_is_the_only_one_if_it_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "bundle" / "tail.py")
    describe(tmp_path / "bundle" / "pipelines" / "ad_events.yaml", name="beside")
    folder = tmp_path / "one" / "folder"
    monkeypatch.setenv("AIRFLOW__SLSHUDI__PIPELINES_FOLDER", str(folder))
    (message,) = parsed(tmp_path / "bundle").import_errors.values()
    assert f"ad_events.yml was looked for in {folder}, which is not there. Put" in message
    describe(folder / "ad_events.yaml", name="of_the_folder")
    bag = parsed(tmp_path / "bundle")
    assert bag.dag_ids == ["of_the_folder_tail"]
    assert pipeline_of(bag.dags["of_the_folder_tail"].get_task("batch.plan")) == "of_the_folder"


def test_a_dag_file_that_is_imported_without_airflow_finds_what_lies_beside(tmp_path: Path) -> None:
    file = put(tmp_path / "tail.py")
    describe(tmp_path / "pipelines" / "ad_events.yaml", name="beside")
    dag = runpy.run_path(str(file))["dag"]
    assert (dag.dag_id, dag.fileloc) == ("beside_tail", str(file))
    assert pipeline_of(dag.get_task("batch.plan")) == "beside"


def test_a_bag_without_a_bundle_ends_at_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "dags" / "team" / "tail.py")
    describe(tmp_path / "dags" / "pipelines" / "ad_events.yaml", name="found")
    monkeypatch.chdir(tmp_path)
    assert DagBag("dags").dag_ids == ["found_tail"]


def test_a_task_works_with_the_pipeline_of_the_bundles_version_that_it_is_parsed_from(tmp_path: Path) -> None:
    dags = []
    for version in ("1", "2"):
        put(tmp_path / version / "team" / "tail.py")
        file = put(tmp_path / version / "pipelines" / "ad_events.yaml", "")
        write_pipeline(file, Path("/lake/ad_events"), misfits="fail" if version == "1" else "nullify")
        dags.append(parsed(tmp_path / version).dags["ad_events_tail"])
    found = [cast(PipelineOperator, dag.get_task("batch.plan")).work(in_run(dag)).pipeline.misfits for dag in dags]
    assert found == ["fail", "nullify"]
    # Airflow's database knows the name alone, so the versions are one DAG, and no machine's path is in it.
    first, second = (json.dumps(DagSerialization.serialize_dag(dag)["tasks"]) for dag in dags)
    assert first == second and str(tmp_path) not in first and '"pipeline": "ad_events"' in first


def test_mapped_tasks_find_each_its_pipeline(tmp_path: Path) -> None:
    put(tmp_path / "team" / "proofs.py", MAPPED)
    for name in ("a", "b"):
        describe(tmp_path / "pipelines" / f"{name}.yaml", name=name)
    mapped: Any = parsed(tmp_path).dags["proofs"].get_task("verify")
    tasks: list[BaseOperator] = [mapped.unmap({"pipeline": name}) for name in ("a", "b")]
    assert [pipeline_of(task) for task in tasks] == ["a", "b"]


def test_the_command_line_looks_into_every_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ads, shop, away = (tmp_path / name for name in ("ads", "shop", "away"))
    describe(ads / "team" / "pipelines" / "ad_events.yaml", name="ad_events")
    describe(shop / "pipelines" / "orders.yaml", name="orders")
    configure(monkeypatch, ads, shop, away)
    assert settings.pipeline("ad_events").name == "ad_events"
    assert settings.pipeline("orders").name == "orders"
    with pytest.raises(ConfigError) as missing:
        settings.pipeline("clicks")
    places = [f"{ads} and below, which has ad_events", f"{away}, which is not there"]
    places += [f"{shop} and below, which has orders", "bundle unknown, which cannot be made here ("]
    assert "; ".join(places) in str(missing.value)

    describe(shop / "orders.yaml", name="orders")
    assert cli.main(["plan", "orders"]) == 1
    told = capsys.readouterr().err
    assert f"{shop}/orders.yaml, {shop}/pipelines/orders.yaml. Keep one, or give the path" in told
    assert settings.pipeline(f"{shop}/orders.yaml").name == "orders"


def test_one_file_that_two_bundles_hold_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    describe(tmp_path / "repository" / "team" / "pipelines" / "ad_events.yaml", name="ad_events")
    (tmp_path / "linked").symlink_to(tmp_path / "repository")
    configure(monkeypatch, tmp_path / "repository", tmp_path / "repository" / "team", tmp_path / "linked")
    assert settings.pipeline("ad_events").name == "ad_events"
