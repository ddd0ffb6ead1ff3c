"""Table services as tasks: what they did is in the log and in the XCom."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_slshudi.hudi.layout import FOLDER, METADATA_FOLDER
from airflow_provider_slshudi.operators.base import PipelineTask
from airflow_provider_slshudi.operators.maintenance import (
    SlsHudiArchiveOperator,
    SlsHudiCleanOperator,
    SlsHudiClusterOperator,
    SlsHudiCompactOperator,
    SlsHudiRebuildMetadataOperator,
)
from tests.pipelines import upserted_often
from tests.scenarios import Scenario
from tests.transaction.served import batches, cluster, served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONTEXT = cast(Context, {"dag_run": SimpleNamespace(dag_id="maintenance", run_id="run-1"), "params": {}})


@pytest.fixture
def pipeline(scenario: Callable[..., Scenario], monkeypatch: pytest.MonkeyPatch) -> Scenario:
    """A pipeline whose services keep next to nothing, which the tasks find."""
    found = served(scenario)
    monkeypatch.setattr(PipelineTask, "work", lambda self, context: found.by(context["dag_run"].run_id))
    return found


def test_services_tell_what_they_did(
    spark: SparkSession, pipeline: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    clean = SlsHudiCleanOperator(task_id="clean", pipeline="ad_events")
    archive = SlsHudiArchiveOperator(task_id="archive", pipeline="ad_events")
    assert clean.execute(CONTEXT) == {"instant": None, "files": 0, "bytes": 0}
    assert "nothing to clean" in capsys.readouterr().out
    logs = batches(pipeline, 2)
    cluster(spark, pipeline)
    batches(pipeline, 2, first=logs)
    capsys.readouterr()
    done = clean.execute(CONTEXT)
    assert done["files"] == 2 and done["bytes"] > 0
    assert f"clean {done['instant']}: 2 files, {done['bytes']} bytes deleted" in capsys.readouterr().out
    done = archive.execute(CONTEXT)
    assert done["instants"] > 0 and done["held_by"] is None
    told = f"archived {done['instants']} instants, {done['commits']} commits stay on the active timeline"
    assert told in capsys.readouterr().out


def test_clustering_and_a_rebuild_tell_what_they_did(pipeline: Scenario, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = SlsHudiClusterOperator(task_id="cluster", pipeline="ad_events")
    assert cluster.execute(CONTEXT)["instant"] is None
    assert "nothing to cluster" in capsys.readouterr().out
    batches(pipeline, 2)
    done = cluster.execute(CONTEXT)
    assert (done["files"], done["into_files"]) == (2, 1)
    assert f"clustering {done['instant']}: 2 files of {done['bytes']} bytes became 1" in capsys.readouterr().out

    rebuild = SlsHudiRebuildMetadataOperator(task_id="rebuild", pipeline="ad_events")
    assert rebuild.execute(CONTEXT)["rebuilt"] is False
    pipeline.work.storage.delete_folder(METADATA_FOLDER)
    capsys.readouterr()
    done = rebuild.execute(CONTEXT)
    assert done["rebuilt"] and done["files"] == 3 and done["unreadable"]
    assert "the metadata table is made anew" in capsys.readouterr().out


def test_compaction_tells_what_it_did(
    scenario: Callable[..., Scenario], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = scenario(shards=1, described=upserted_often)
    monkeypatch.setattr(PipelineTask, "work", lambda self, context: found.by(context["dag_run"].run_id))
    for _ in range(2):  # an event again is an update, and that a log file
        batches(found, 1)
    compact = SlsHudiCompactOperator(task_id="compact", pipeline="ad_events")
    done = compact.execute(CONTEXT)
    assert done["files"] == 2 * done["into_files"] > 0
    assert f"compaction {done['instant']}: {done['files']} files of {done['bytes']} bytes" in capsys.readouterr().out
    assert compact.execute(CONTEXT)["instant"] is None
    assert "nothing to compact" in capsys.readouterr().out


def test_a_service_fails_at_once_where_a_person_has_to_look(pipeline: Scenario) -> None:
    batches(pipeline, 1)
    storage = pipeline.work.storage
    storage.delete_files([f"{FOLDER}/{name}" for name in storage.names(FOLDER) or [] if name != "history"])
    with pytest.raises(AirflowFailException, match="slshudi ledger rebuild"):
        SlsHudiCleanOperator(task_id="clean", pipeline="ad_events").execute(CONTEXT)
