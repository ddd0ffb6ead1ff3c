"""MB/s of raw protobuf that one core writes into base files, over 1, 8, 24 and 400 partitions.

    python benchmarks/base_files.py [--megabytes 1000] [--partitions 1 8 24 400] [--beside OLD.py]

Each figure is of a process of its own, which writes decoded ad events whose partitions are random, so that every pull
is over all of them. The figures are CPU seconds of the process, all threads together, from the first row to the last
file closed. `--beside` takes another version's `hudi/files/basefile.py` and writes with it too, fewer bytes if need be.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from aliyun.log.log_logs_raw_pb2 import LogGroupListRaw

from airflow_provider_slshudi.cli.demo.put import ad_events
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.config.values import parse_size
from airflow_provider_slshudi.handover import fencing
from airflow_provider_slshudi.hudi.files import basefile
from airflow_provider_slshudi.rows.maker import RowMaker, RowSpec
from airflow_provider_slshudi.sls.decode import decode
from airflow_provider_slshudi.storage.files import Storage

TARGET = parse_size("128MiB")
POOL = 16
"""Pulls that differ: 96 MB, more than a row group holds."""
GROUPS, LOGS = 10, 1000
TYPES = {"price": "double", "ad_id": "bigint", "campaign_id": "bigint", "clicked": "boolean"}

Pull = tuple[pa.Table, pa.Array]


def rows() -> tuple[list[Pull], float]:
    """The pool's rows with their keys, and raw bytes of a pull."""
    events = ad_events(1, 1_700_000_000_000)
    names = [name for name, _ in next(events)]
    columns: list[dict[str, str]] = [{"name": name, "type": TYPES.get(name, "string")} for name in names]
    columns[names.index("event_time")].update(type="timestamp", format="millis")
    table = {"path": "file:///unused", "name": "bench", "partition": {"by": "event_time", "column": "event_time"}}
    source = {"project": "none", "logstore": "none"}
    spec = RowSpec.of(Pipeline.model_validate({"name": "bench", "source": source, "table": table, "columns": columns}))
    maker, pool, raw = RowMaker(spec), [], 0
    for number in range(POOL):
        listed = LogGroupListRaw()
        for _ in range(GROUPS):
            group = listed.LogGroups.add(Topic="ad_events", Source="10.0.0.1")
            for _ in range(LOGS):
                log = group.Logs.add(Time=1_700_000_000)
                for key, value in next(events):
                    log.Contents.add(Key=key, Value=value.encode())
        body = listed.SerializeToString()
        raw += len(body)
        made = maker.rows(decode(body, 0, number * GROUPS, spec.keys, GROUPS), 0)
        pool.append((made.data, made.keys))
    return pool, raw / POOL


def pulls(pool: list[Pull], count: int, partitions: int) -> Iterator[tuple[pa.Table, pa.Array, pa.DictionaryArray]]:
    """So many pulls, over all partitions each; a row's partition is a column of the table, too."""
    dice = np.random.default_rng(1)
    values = pa.array([f"part-{number}" for number in range(partitions)])
    for number in range(count):
        data, keys = pool[number % POOL]
        codes = pa.array(dice.integers(0, partitions, len(keys), dtype=np.int32))
        parts = pa.DictionaryArray.from_arrays(codes, values)
        yield data.append_column("part", parts), keys, parts


def measure(answer: Any, module: str | None, megabytes: int, partitions: int) -> None:
    """Writes and answers: MB/s, files, share of bytes in files near the target, spilled MB, peak RSS over the start."""
    pool, raw = rows()
    count = max(1, round(megabytes * 1e6 / raw))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder:
        kind = _other(module) if module else basefile
        storage, instant = Storage(f"file://{folder}"), "20260101000000000"
        fencing.admit(storage, instant)
        writer = kind.BaseFileWriter(storage, instant, "0-0-0", TARGET, lambda: None)
        knows = "done" in inspect.signature(writer.write).parameters
        began = time.process_time()
        for number, (data, keys, parts) in enumerate(pulls(pool, count, partitions), 1):
            writer.write(data, keys, "part", parts, **({"done": number / count} if knows else {}))
        stats = writer.close()
        spent = time.process_time() - began
    sizes = [stat["fileSizeInBytes"] for stat in stats]
    near = sum(size for size in sizes if TARGET / 2 <= size <= 1.5 * TARGET) / sum(sizes)
    spilled = writer._spill.size / 1e6 if knows else 0.0
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / 1e6
    answer.send((count * raw / spent / 1e6, len(sizes), sum(sizes) / 1e6, near, spilled, grown))


def _other(path: str) -> Any:
    spec = importlib.util.spec_from_file_location("other_basefile", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path}: expected a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Measures and prints a line per number of partitions."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--megabytes", type=int, default=1000, help="raw bytes that a task writes")
    asked.add_argument("--partitions", type=int, nargs="+", default=[1, 8, 24, 400])
    asked.add_argument("--beside", type=Path, help="another version's basefile.py")
    asked.add_argument("--beside-megabytes", type=int, default=120)
    given = asked.parse_args()
    print("partitions    raw MB     MB/s  files  MB in files  near target  spilled MB  memory MB")
    for partitions in given.partitions:
        runs: list[tuple[str | None, int]] = [(None, given.megabytes)]
        if given.beside is not None:
            runs.append((str(given.beside), given.beside_megabytes))
        for module, megabytes in runs:
            here, there = multiprocessing.Pipe()
            child = multiprocessing.get_context("spawn").Process(
                target=measure, args=(there, module, megabytes, partitions)
            )
            child.start()
            there.close()
            speed, files, size, near, spilled, grown = here.recv()
            child.join()
            name = f"{partitions}{' beside' if module else ''}"
            print(
                f"{name:<12}{megabytes:8}{speed:9.0f}{files:7}{size:13.0f}{near:13.0%}{spilled:12.0f}{grown:11.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
