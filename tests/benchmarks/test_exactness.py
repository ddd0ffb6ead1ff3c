"""The benchmark compares like with like: both of its sides leave the same rows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.long

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "exactness.py"
# What a commit stamps on its rows; the rest of them must be the same.
STAMPS = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name")


def rows(table: Path) -> pa.Table:
    files = sorted(table.glob("event_date=*/*.parquet"))
    found = pa.concat_tables(pq.ParquetFile(file).read() for file in files)
    return found.drop_columns(STAMPS).sort_by("_hoodie_record_key")


def test_both_sides_write_the_same_rows(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = [sys.executable, str(BENCHMARK), "--rounds", "1", "--sizes", "0.01"]
    done = subprocess.run([*command, "--keep", str(tmp_path), "--json", str(figures)], capture_output=True, text=True)
    # 1 says that a bar was missed, which a run this short cannot tell.
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout.splitlines()[-1].startswith("exactness: ")
    [took] = json.loads(figures.read_text())["0.01"]["rounds"]
    ours, bare = rows(tmp_path / "0.01-ours"), rows(tmp_path / "0.01-bare")
    assert ours.num_rows > took["ours"]["rows"] == took["bare"]["rows"] > 10_000
    assert ours.equals(bare)
