"""The mirror as a task: what it did is in the log and in the XCom."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest
from airflow.sdk import Context

from airflow_provider_slshudi.operators.base import PipelineTask
from airflow_provider_slshudi.operators.maintenance import SlsHudiMirrorOperator
from tests.mirror.conftest import Mirrored
from tests.mirror.test_follow import rows

CONTEXT = cast(Context, {"dag_run": SimpleNamespace(dag_id="tail", run_id="run-1"), "params": {}})


def test_it_tells_which_instants_it_mirrored(
    mirrored: Callable[..., Mirrored], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = mirrored()
    monkeypatch.setattr(PipelineTask, "work", lambda self, context: table.work)
    task = SlsHudiMirrorOperator(task_id="mirror", pipeline="events")
    table.made.append(rows("a", 1))
    compared = {"instants": [], "reconciled": True}
    assert task.execute(CONTEXT) == {"iceberg": compared, "delta": compared}
    (stat,) = table.made.append(rows("a", 2))
    instant = str(stat["path"]).rpartition("_")[2].removesuffix(".parquet")
    followed = {"instants": [instant], "reconciled": False}
    assert task.execute(CONTEXT) == {"iceberg": followed, "delta": followed}
    assert "iceberg mirror: 1 instants" in capsys.readouterr().out
