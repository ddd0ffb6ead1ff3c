"""Times on timelines rise, in UTC, whatever zone a process is in and whatever its clock says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import ClockBehind, TimelineUnreadable
from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.hudi.beside import Beside, keep_place
from airflow_provider_slshudi.hudi.client import clock, commit, instants, services
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.layout import FOLDER, METADATA_FOLDER
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.spark.driver import verbs
from airflow_provider_slshudi.storage.files import Storage
from tests.hudi.conftest import write_files
from tests.needs import FAKETIME, needs_faketime
from tests.pipelines import ad_events, served_often
from tests.zones import in_zone, without_zone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMED = [
    Verb.OPEN,
    Verb.COMMIT,
    Verb.ROLLBACK,
    Verb.PLAN_CLEAN,
    Verb.CLEAN,
    Verb.ARCHIVE,
    Verb.PLAN_CLUSTERING,
    Verb.COMPLETE_CLUSTERING,
    Verb.PLAN_COMPACTION,
    Verb.COMPLETE_COMPACTION,
    Verb.REBUILD_METADATA,
]
"""Verbs that put times on timelines."""


def digits(at: datetime) -> str:
    """A time as Hudi writes it."""
    return f"{at:%Y%m%d%H%M%S}{at.microsecond // 1000:03}"


def utc(seconds: float = 0) -> str:
    """The time in so many seconds."""
    return digits(datetime.now(timezone.utc) + timedelta(seconds=seconds))


def put_time(storage: Storage, at: str) -> None:
    """Somebody's clean at a time, in a table that may have nothing else."""
    storage.write(f"{FOLDER}/{at}_{at}.clean", b"")


def opened_by(gateway: Gateway, pipeline: Pipeline) -> str:
    """The instant that `open` puts on the timeline."""
    before = {item.time for item in Timeline.load(Storage(pipeline.table.path))}
    verbs.CONTROL[Verb.OPEN](gateway, JobOrder(pipeline.model_dump(mode="json"), "t1", 1, creates=True))
    (found,) = {item.time for item in Timeline.load(Storage(pipeline.table.path)).pending()} - before
    return found


def batch(gateway: Gateway, pipeline: Pipeline, first: int) -> str:
    """Ten rows from a number on, committed by whatever clock the JVM has."""
    storage = Storage(pipeline.table.path)
    instant = instants.new_instant_time(gateway, storage.uri)
    instants.request(gateway, storage.uri, instant)
    instants.to_inflight(gateway, storage.uri, instant)
    commit.commit(gateway, pipeline, instant, write_files(storage, instant, 10, first=first), {})
    return instant


def files(root: Path) -> set[Path]:
    return set(root.rglob("*"))


@pytest.mark.parametrize("where", ["main", "metadata", "quarantine", "quarantine's metadata"])
def test_a_clock_that_is_behind_is_refused_with_both_times_before_anything_is_written(
    gateway: Gateway, pipeline: Pipeline, storage: Storage, tmp_path: Path, where: str
) -> None:
    instants.create_table(gateway, pipeline)
    assert [table.uri for table in clock.tables_of(pipeline)] == [storage.uri, f"{storage.uri}/{METADATA_FOLDER}"]
    keep_place(Beside.quarantine(pipeline), digits(datetime.now(timezone.utc)))
    table = dict(
        zip(("main", "metadata", "quarantine", "quarantine's metadata"), clock.tables_of(pipeline), strict=True)
    )[where]
    ahead = datetime.now(timezone.utc) + timedelta(hours=1)
    put_time(table, digits(ahead))
    before = files(tmp_path)
    for verb in TIMED if where == "main" else [Verb.OPEN, Verb.ARCHIVE]:
        began = time.monotonic()
        with pytest.raises(
            ClockBehind, match=rf"timeline is {ahead:%Y-%m-%d %H:%M:%S} UTC.* clock says 20.* UTC"
        ) as told:
            verbs.CONTROL[verb](gateway, JobOrder(pipeline.model_dump(mode="json"), "t1", 1, instant="1"))
        assert told.value.table == table.uri and told.value.instant == digits(ahead)
        assert time.monotonic() - began < 30
    assert files(tmp_path) == before
    if where == "metadata":
        # It makes that table anew, so this is the way out.
        with clock.rising(gateway, clock.tables_of(pipeline, METADATA_FOLDER)) as in_utc:
            assert in_utc


def test_a_clock_that_is_a_little_behind_is_waited_for(gateway: Gateway, pipeline: Pipeline, storage: Storage) -> None:
    instants.create_table(gateway, pipeline)
    put_time(storage, there := utc(3))
    assert there < opened_by(gateway, pipeline) < utc()


def test_digits_that_are_no_time_are_named(gateway: Gateway, pipeline: Pipeline, storage: Storage) -> None:
    instants.create_table(gateway, pipeline)
    put_time(storage, "99999999999999999")
    with pytest.raises(TimelineUnreadable, match="has 99999999999999999, which is no time"):
        opened_by(gateway, pipeline)


def test_a_table_from_east_of_utc_goes_on_at_once_and_holds_up_no_other(
    spark: SparkSession, gateway: Gateway, tmp_path: Path
) -> None:
    """As tables were written before: in the zone of the machine, where the metadata table was compacted last."""
    pipeline = served_often(tmp_path / "east", misfits="quarantine")
    tables = clock.tables_of(pipeline)
    with in_zone(gateway, "Asia/Shanghai"):
        instants.create_table(gateway, pipeline)
        without_zone(tables[0])
        for first in (0, 10):
            batch(gateway, pipeline, first)
        services.archive(gateway, pipeline)
    newest = clock._newest(tables)
    assert newest is not None and newest.time > utc(7.9 * 3600)

    began = opened_by(gateway, pipeline)
    assert newest.time < began < utc(8.1 * 3600)
    assert began < digits(newest.at + timedelta(seconds=60)), "no further ahead than it takes"
    with clock.rising(gateway, tables) as in_utc:
        assert not in_utc
        assert began < batch(gateway, pipeline, 20)
    reader = spark.read.format("hudi").option("hoodie.metadata.enable", "true")
    assert reader.load(tables[0].full("")).count() == 30
    assert b"timezone=UTC" not in (tables[0].read(".hoodie/hoodie.properties") or b"")
    # What is made meanwhile shares the clock, so it does not say that it is in UTC.
    assert b"timezone=LOCAL" in (tables[2].read(".hoodie/hoodie.properties") or b"")

    other = ad_events(tmp_path / "other")
    assert utc(-60) < opened_by(gateway, other) < utc()
    assert b"timezone=UTC" in (Storage(other.table.path).read(".hoodie/hoodie.properties") or b"")


_AT_THE_CHANGE = """
import json, os, shlex, sys, time
from pathlib import Path
from airflow_provider_slshudi.exceptions import ClockBehind
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.spark.runtime import control_conf, environment, leave
os.environ.update(environment())
from tests.hudi.client.test_clock import opened_by
from tests.pipelines import ad_events

conf = control_conf()
# Whatever else we tell a JVM: its zone is the machine's.
conf["spark.driver.extraJavaOptions"] += " -Duser.timezone=America/New_York"
conf = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*conf, "pyspark-shell"])
# Not for Python: faked, its waits with a timeout fail.
os.environ["LD_PRELOAD"] = os.environ.pop("FAKETIME_LIBRARY")
gateway, pipeline, told = Gateway.without_context(), ad_events(Path(sys.argv[1])), []
for offset in sys.argv[3:]:
    Path(sys.argv[2]).write_text(offset)
    while abs(gateway.jvm.System.currentTimeMillis() / 1000 - time.time() - float(offset)) > 60:
        time.sleep(0.1)
    began = time.monotonic()
    try:
        told.append(opened_by(gateway, pipeline))
    except ClockBehind as error:
        told.append(f"{error} (after {time.monotonic() - began:.0f} s)")
print(json.dumps(told), flush=True)
leave(gateway.jvm)
"""


@pytest.mark.long
@needs_faketime
def test_the_end_of_summer_time_and_a_clock_that_is_set_back_by_an_hour(tmp_path: Path) -> None:
    """One process in New York, on the day when 01:50 is followed by 01:10."""
    hours = [datetime(2026, 11, 1, *at, tzinfo=timezone.utc) for at in ((5, 50), (6, 10), (5, 10), (6, 20))]
    faked, offsets = tmp_path / "offset", [f"{at.timestamp() - time.time():+.0f}" for at in hours]
    faked.write_text(offsets[0])
    variables = {
        **os.environ,
        "TZ": "America/New_York",
        "FAKETIME_LIBRARY": str(FAKETIME),
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_CACHE_DURATION": "1",
        "NO_FAKE_STAT": "1",
        "FAKETIME_TIMESTAMP_FILE": str(faked),
    }
    command = [sys.executable, "-c", _AT_THE_CHANGE, str(tmp_path / "table"), str(faked), *offsets]
    done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, timeout=300, check=True)
    summer, winter, refused, after = json.loads(done.stdout.splitlines()[-1])
    assert [opened[:10] for opened in (summer, winter, after)] == ["2026110105", "2026110106", "2026110106"]
    assert summer < winter < after
    assert re.search(r"timeline is 2026-11-01 06:1.* clock says 2026-11-01 05:1.*\(after \d s\)", refused), refused
