"""A log group of half a megabyte whose logs take gigabytes: it is written whole, in little memory."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.local.pytest_plugin import local_sls
from airflow_provider_slshudi.sls import wire
from tests.local.sdk import PROJECT, by_ip, make_logstore

__all__ = ["local_sls"]

LOGS, TAG_BYTES = 3_000, 500_000
NOTE = random.Random(1).randbytes(TAG_BYTES // 2).hex().encode()
MIB = 1 << 20
_TASK = """
import json, sys
from pathlib import Path
from airflow_provider_slshudi.spark.driver.append import AppendTask
from airflow_provider_slshudi.spark.driver.reading import ReadSpec
from airflow_provider_slshudi.handover import batch_files, fencing
from airflow_provider_slshudi.handover.batch_files import BatchOrder, Attempt
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.rows.maker import RowSpec
from airflow_provider_slshudi.system.secrets import Secret
from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.sls.pace import Limits
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.storage.files import Storage
from tests.local.sdk import PROJECT
from tests.pipelines import ad_events

given, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
*place, key = given["connection"]
service = LogService(SlsConnection(*place, Secret(key)), PROJECT, given["logstore"])
columns = [{"name": "n", "type": "bigint"}, *given["columns"]]
pipeline = ad_events(folder, table={"path": f"file://{folder}", "name": "events"}, columns=columns, rest_column="rest",
                     misfits="quarantine")
storage = Storage(pipeline.table.path)
fencing.admit(storage, "20260101000000000")
batch_files.write_order(storage, BatchOrder("t1", 1, "20260101000000000", {}, [], {}))
read = ReadSpec(lambda: service, "events", RowSpec.of(pipeline), {0: Limits(1e9, 1e3)})
task = AppendTask(read, Attempt(storage, "t1", "20260101000000000", 1), None, 128 << 20)
result = task([Range(0, service.begin(0), service.end(0))], "0-0-0")
# Not ru_maxrss, which begins with what the process that started this one has.
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
done = [[item.rows, item.bytes] for item in result.ranges]
peak = int(status["VmHWM"].split()[0]) * 1024
print(json.dumps({"peak": peak, "stats": result.stats, "done": done, "unfit": result.tally.unfit}))
"""


@pytest.mark.parametrize("columns", [[], [{"name": "note", "key": "__tag__:note"}]], ids=["rest", "column"])
def test_a_wide_log_group_is_written_in_little_memory(
    local_sls: LocalSls, tmp_path: Path, columns: list[dict[str, str]]
) -> None:
    client = by_ip(local_sls.connection())
    logstore = make_logstore(client, f"wide-{len(columns)}")
    group = wire.LogGroup(Topic=b"t")
    group.LogTags.add(Key=b"note", Value=NOTE)
    for number in range(LOGS):
        # The last log does not fit: the quarantine has it whole.
        group.Logs.add(Time=1).Contents.add(Key=b"n", Value=b"%d" % number if number < LOGS - 1 else b"odd")
    body = group.SerializeToString()
    client.put_log_raw(PROJECT, logstore, group)
    there = local_sls.connection()
    service = [there.endpoint, there.access_key_id, there.access_key_secret.reveal()]
    given = {"connection": service, "logstore": logstore}
    command = [sys.executable, "-c", _TASK, json.dumps({**given, "columns": columns}), str(tmp_path)]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert told["peak"] < 420 * MIB, f"{told['peak'] >> 20} MiB"
    assert told["done"] == [[LOGS, len(wire.frame(len(body)) + body)]]
    assert told["unfit"] == 1
    numbers = []
    for stat in told["stats"][0]:
        assert stat["fileSizeInBytes"] < 64 * MIB
        with pq.ParquetFile(tmp_path / stat["path"]) as file:
            for place in range(file.num_row_groups):
                rows = file.read_row_group(place)
                assert rows.nbytes < 128 * MIB, "a reader takes a row group at a time"
                numbers += rows["n"].to_pylist()
                notes = rows["note"] if columns else rows["rest"].combine_chunks().items
                assert set(notes.unique().to_pylist()) == {NOTE.decode()}
    assert numbers == list(range(LOGS - 1))
