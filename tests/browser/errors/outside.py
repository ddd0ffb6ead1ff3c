"""Errors whose remedy lies outside of Airflow's pages, or in its connections: the page's words say what to change."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.sls import cursors
from airflow_provider_slshudi.spark.python_archive import pack
from tests.browser.errors.passing import UPSERTS
from tests.browser.errors.play import Scenarios
from tests.browser.errors.stage import Stage
from tests.browser.errors.world import PROJECT
from tests.services import hive_metastore, spark_cluster

SCENARIOS = Scenarios()
METASTORE = 9083
"""The port that metastores have as a rule."""
FOLDERS = {"by": "field", "column": "event_id", "every": None, "timezone": None, "name": None}
"""A partition for each event."""


@SCENARIOS.of("ConfigError")
def config_error(stage: Stage) -> str:
    """A connection is of another type."""
    conn_id = _own_connection(stage, conn_type="http")
    stage.put(100)
    stage.fails(stage.begin())
    failure = stage.sees("ConfigError", f"connection '{conn_id}' has type 'http', expected 'sls'")
    stage.world.connect_source(conn_id)
    stage.goes_on(within=failure)
    return "correct the connection, run now"


@SCENARIOS.of("ConnectionMissing")
def connection_missing(stage: Stage) -> str:
    """The pipeline's file names a connection that nobody made."""
    conn_id = f"sls_{stage.name}"
    stage.edit(source={"connection": conn_id})
    stage.put(100)
    run = stage.begin()
    stage.sees("ConnectionMissing", f"Airflow has no connection '{conn_id}'")
    stage.world.connect_source(conn_id)
    stage.ended(run)  # one of its retries may have found it
    stage.goes_on()
    return "add the connection, run now"


@SCENARIOS.of("SourceRefused")
def source_refused(stage: Stage) -> str:
    """The key's secret is wrong."""
    conn_id = _own_connection(stage, password="another")
    stage.put(100)
    stage.fails(stage.begin())
    failure = stage.sees("SourceRefused", "SignatureNotMatch")
    stage.world.connect_source(conn_id)
    stage.goes_on(within=failure)
    return "correct the key, run now"


def _own_connection(stage: Stage, **changes: str) -> str:
    conn_id = f"sls_{stage.name}"
    stage.world.connect_source(conn_id, **changes)
    stage.edit(source={"connection": conn_id})
    return conn_id


@SCENARIOS.of("RuntimeMissing")
def runtime_missing(stage: Stage) -> str:
    """The machine's folder for jars cannot be made."""
    stage.machine(SLSHUDI_CACHE="/proc/slshudi")
    stage.put(100)
    stage.fails(stage.begin())
    failure = stage.sees("RuntimeMissing", "/proc/slshudi")
    stage.machine(SLSHUDI_CACHE="")
    stage.goes_on(within=failure)
    return "set the folder, run now"


@SCENARIOS.of("ExecutorUnfit")
def executor_unfit(stage: Stage) -> str:
    """A cluster's workers have Python alone, and the pipeline's file names no archive."""
    home = stage.world.home
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home / "bare"], check=True)
    with spark_cluster({"PYTHONPATH": ""}) as cluster:
        host, port = cluster.master.rsplit(":", 1)
        stage.world.connect("spark_cluster", "spark", host=host, port=int(port))
        stage.machine(SPARK_CONF_DIR=str(cluster.settings))
        stage.edit(spark={"connection": "spark_cluster", "conf": {"spark.pyspark.python": f"{home}/bare/bin/python"}})
        stage.put(100)
        stage.fails(stage.begin())
        failure = stage.sees("ExecutorUnfit", "has no airflow_provider_slshudi")
        pack(home / "slshudi.tar.gz")
        stage.edit(spark={"archive": f"{home}/slshudi.tar.gz"})
        stage.goes_on(within=failure)
    return "make the archive, run now"


@SCENARIOS.of("CursorError")
def cursor_error(stage: Stage) -> str:
    """A backfill over REST names a text that is no cursor. It is told to whoever asked, and no trouble of the page."""
    stage.before()
    stage.put(50)
    airflow, backfill = stage.world.airflow, stage.operations
    begin = stage.world.client.get_begin_cursor(PROJECT, stage.logstore, 0).get_cursor()
    end = stage.world.client.get_end_cursor(PROJECT, stage.logstore, 0).get_cursor()
    run = airflow.trigger(backfill, {"act": "backfill", "cursors": {"0": ["cursor=", end]}})
    assert stage.ended(run, backfill) == "failed"
    log = airflow.task_log(backfill, run, "batch.plan")
    assert "'cursor=' is no SLS cursor: expected base64 of a decimal integer" in log, log
    stage.is_well()
    run = airflow.trigger(backfill, {"act": "backfill", "cursors": {"0": [str(cursors.parse(begin)), end]}})
    assert stage.ended(run, backfill) == "success", stage.explain()
    stage.is_well()
    return "trigger the backfill again with a cursor"


@SCENARIOS.of("DecodeError")
def decode_error(stage: Stage) -> str:
    """The service keeps a log whose bytes were damaged, until somebody at the service mends it."""
    stage.put(100)
    file = next(file for file in _files_of(stage) if b"event_id" in file.read_bytes())
    at = file.read_bytes().index(b"\x0a\x08event_id")
    _overwrite(file, at, b"\x0f")
    stage.fails(stage.begin())
    stage.sees("DecodeError", "shard 0")
    _overwrite(file, at, b"\x0a")
    stage.goes_on()
    return "report it; once the service has mended it, run now"


def _files_of(stage: Stage) -> list[Path]:
    return [file for file in (stage.world.home / "sls").rglob("*") if file.is_file() and stage.logstore in str(file)]


def _overwrite(file: Path, at: int, content: bytes) -> None:
    """In its place: the server has the file open."""
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(content)


@SCENARIOS.of("ValueMisfit", misfits="fail")
def value_misfit(stage: Stage) -> str:
    """A price is none, and the pipeline's file says that this fails the batch."""
    stage.put(90)
    stage.put(10, changes={"price": "n/a"})
    stage.fails(stage.begin())
    failure = stage.sees("ValueMisfit", "a value of 3 bytes of log")
    stage.edit(misfits="nullify")
    stage.goes_on(within=failure)
    return "let misfits be nullified, run now"


@SCENARIOS.of("TooManyMisfits", max_misfits=0.05)
def too_many_misfits(stage: Stage) -> str:
    """A tenth of the prices are none."""
    stage.put(90)
    stage.put(10, changes={"price": "n/a"})
    stage.fails(stage.begin())
    failure = stage.sees("TooManyMisfits", "10 of 100 logs")
    stage.edit(max_misfits=0.2)
    stage.goes_on(within=failure)
    return "allow more, run now"


@SCENARIOS.of("CheckFailed", checks=[{"name": "priced", "every": "price >= 0"}])
def check_failed(stage: Stage) -> str:
    """A price is below nought."""
    stage.put(90)
    stage.put(10, changes={"price": "-1"})
    stage.fails(stage.begin())
    failure = stage.sees("CheckFailed", "check priced")
    stage.edit(checks=[{"name": "priced", "every": "price >= -1"}])
    stage.goes_on(within=failure)
    return "mend the check, run now"


@SCENARIOS.of("KeyMissing", table=UPSERTS)
def key_missing(stage: Stage) -> str:
    """A log has no id."""
    stage.put(100)
    stage.put(1, lost=True, changes={"event_id": None})
    stage.fails(stage.begin())
    failure = stage.sees("KeyMissing", "column event_id: log 0-")
    stage.edit(table={"upsert": {"missing_key": "drop"}})
    stage.goes_on(within=failure)
    return "let such logs be dropped, run now"


@SCENARIOS.of("CatalogFailed", catalog={"metastore": f"thrift://127.0.0.1:{METASTORE}"})
def catalog_failed(stage: Stage) -> str:
    """The metastore is away."""
    stage.put(100)
    run = stage.begin()
    stage.sees("CatalogFailed", f"127.0.0.1:{METASTORE}")
    with hive_metastore(METASTORE):
        stage.ended(run)  # one of its retries may have found it
        stage.goes_on()
    return "start the metastore, run now"


@SCENARIOS.of("WritesRefused")
def writes_refused(stage: Stage) -> str:
    """The table's disk is full, which takes root to make."""
    stage.table.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", stage.table], check=True)
    try:
        stage.before()
        with suppress(OSError), (stage.table / "filler").open("wb", buffering=0) as filler:
            while filler.write(bytes(4096)):
                pass
        stage.put(50)
        run = stage.run_now()
        failure = stage.sees("WritesRefused", "No space left on device")
        assert failure.locator("a.button:has-text('Start over')").count() == 0
        (stage.table / "filler").unlink()
        stage.ended(run)  # one of its retries may have found room
        stage.goes_on()
        kept = stage.table.with_name(f"{stage.name}.kept")
        shutil.copytree(stage.table, kept)
    finally:
        subprocess.run(["umount", "--lazy", stage.table], check=True)
    stage.table.rmdir()
    kept.rename(stage.table)
    return "make room, nothing else"


@SCENARIOS.of("PipelineConflict")
def pipeline_conflict(stage: Stage) -> str:
    """Somebody edits the logstore's name."""
    stage.before()
    stage.edit(source={"logstore": "another"})
    stage.fails(stage.run_now())
    failure = stage.sees("PipelineConflict", "put `source` back")
    stage.edit(source={"logstore": stage.logstore})
    stage.goes_on(within=failure)
    return "put the file back, run now"


@SCENARIOS.of("ColumnMismatch")
def column_mismatch(stage: Stage) -> str:
    """Somebody makes a whole number of the price."""
    stage.before()
    before = stage.file.read_text(encoding="utf-8")
    stage.file.write_text(before.replace("type: double", "type: int"), encoding="utf-8")
    stage.fails(stage.run_now())
    failure = stage.sees("ColumnMismatch", "price")
    stage.file.write_text(before, encoding="utf-8")
    stage.goes_on(within=failure)
    return "do what the message says of the column, run now"


@SCENARIOS.of("TableMismatch")
def table_mismatch(stage: Stage) -> str:
    """Somebody edits the table's name in Hudi."""
    stage.before()
    stage.edit(table={"name": "another"})
    stage.put(50)
    stage.fails(stage.run_now())
    failure = stage.sees("TableMismatch", "name: ad_events there, another in the file")
    stage.edit(table={"name": "ad_events"})
    stage.goes_on(within=failure)
    return "correct the file, run now"


@SCENARIOS.of("TableDenied")
def table_denied(stage: Stage) -> str:
    """A folder of the table refuses the user of the pipelines."""
    stage.before()
    stage.put(50)
    timeline = stage.table / ".hoodie" / "timeline"
    timeline.chmod(0)
    stage.fails(stage.run_now())
    failure = stage.sees("TableDenied", str(timeline))
    timeline.chmod(0o755)
    stage.goes_on(within=failure)
    return "give the folder to the user of the pipelines, run now"


@SCENARIOS.of("JobDenied")
def job_denied(stage: Stage) -> str:
    """A folder of the table refuses the append's driver."""
    stage.before()
    stage.put(50)
    (partition,) = stage.table.glob("event_date=*")
    partition.chmod(0o555)
    stage.fails(stage.run_now())
    failure = stage.sees("JobDenied", str(partition))
    partition.chmod(0o755)
    stage.goes_on(within=failure)
    return "give the folder to the user of the pipelines, run now"


@SCENARIOS.of("TooManyFiles", table={**UPSERTS, "partition": FOLDERS})
def too_many_files(stage: Stage) -> str:
    """Each of ten thousand and one logs has a folder of its own, where a row may be in no other one."""
    stage.put(10_001, size=1_000)
    stage.fails(stage.begin())
    failure = stage.sees("TooManyFiles", "one commit takes at most 10000")
    stage.edit(batch={"max_bytes": "256KiB"})
    stage.succeeds(stage.run_now(failure))
    while sum(batch.rows for batch in stage.world.ledger.last(stage.name, 9, State.COMMITTED)) < 10_001:
        stage.succeeds(stage.run_now())
    stage.is_well()
    return "make batches smaller, run now"
