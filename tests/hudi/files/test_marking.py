"""Markers: what a killed writer leaves among them harms no rollback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.handover.job_order import JobOrder
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.spark.driver import verbs
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.system.points import Point
from tests.hudi.conftest import write_files
from tests.points import armed_in
from tests.waiting import until

MARKS = """
import sys
from airflow_provider_slshudi.hudi.files.marking import describe_partition, mark
from airflow_provider_slshudi.storage.files import Storage
uri, instant = sys.argv[1:]
mark(Storage(uri), instant, f"event_date=2026-01-01/a-0_0-0-0_{instant}.parquet", lambda: None)
"""


def roll_back(gateway: Gateway, pipeline: Pipeline, instant: str) -> None:
    verbs.roll_back(gateway, JobOrder(pipeline.model_dump(mode="json"), "t1", 1, instant))


def markers(storage: Storage, instant: str) -> list[str]:
    found = Path(storage.full(f".hoodie/.temp/{instant}")).rglob("*")
    return sorted(path.name for path in found if path.is_file())


def test_a_writer_that_is_killed_within_a_markers_write_leaves_nothing_but_a_marker(
    gateway: Gateway, pipeline: Pipeline, storage: Storage, opened: Callable[[], str], tmp_path: Path
) -> None:
    instant = opened()
    armed = tmp_path / "points" / Point.APPEND_TASK_MARKING.value
    armed.parent.mkdir()
    armed.write_text("hold")
    environment = {**os.environ, **armed_in(armed.parent)}
    with subprocess.Popen([sys.executable, "-c", MARKS, storage.uri, instant], env=environment) as writer:
        until("the writer is held", armed.with_name(f"{armed.name}.{writer.pid}").exists)
        writer.send_signal(signal.SIGKILL)
    assert markers(storage, instant) == [f"a-0_0-0-0_{instant}.parquet.marker.CREATE"]
    roll_back(gateway, pipeline, instant)
    assert Timeline.load(storage).was_rolled_back(instant)


def test_what_a_killed_writer_of_an_earlier_version_left_is_out_of_the_rollbacks_way(
    gateway: Gateway, pipeline: Pipeline, storage: Storage, opened: Callable[[], str]
) -> None:
    instant = opened()
    (stat,) = write_files(storage, instant, 10)
    (marker,) = Path(storage.full(f".hoodie/.temp/{instant}")).rglob("*.CREATE")
    (marker.parent / f"b-0_0-0-0_{instant}.parquet.marker.CREATE.{'0' * 32}.tmp").touch()
    roll_back(gateway, pipeline, instant)
    assert Timeline.load(storage).was_rolled_back(instant)
    assert not storage.exists(stat["path"]) and not markers(storage, instant)
