"""Has a reader answer tables in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.machine import ROOT
from tests.readers.engines.harness import ANSWER
from tests.readers.questions import describe
from tests.readers.readers import Reader, Services
from tests.readers.tables import ICEBERG, ReaderTable

_END_OF_WORDS = 400
Answer = dict[str, Any]


def ask(reader: Reader, tables: Sequence[ReaderTable], services: Services) -> Iterator[tuple[ReaderTable, Answer]]:
    """The reader's answers, each as soon as it is there. A process that dies answers the rest with its last words."""
    told = {
        "settings": reader.settings(services),
        "tables": [_described(table) for table in tables],
    }
    command = [str(reader.python()), "-m", "tests.readers.engines.harness", reader.engine]
    with tempfile.TemporaryFile("w+") as errors, tempfile.TemporaryDirectory(prefix="slshudi-reader-") as folder:
        variables = {**os.environ, "TZ": "UTC", **reader.variables(), "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            command, env=variables, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(told))
        process.stdin.close()
        waiting = list(tables)
        for line in process.stdout:
            if line.startswith(ANSWER):
                yield waiting.pop(0), json.loads(line.removeprefix(ANSWER))
        code = process.wait()
        errors.seek(0)
        words = f"its process ended with {code}: {' '.join(errors.read().split())[-_END_OF_WORDS:]}"
    for table in waiting:
        yield table, {"table": table.name, "form": table.form, "numbers": {}, "refused": {"values": words}}


def _described(table: ReaderTable) -> dict[str, Any]:
    return {
        "name": table.name,
        "form": table.form,
        "path": table.hudi_path,
        "metadata": _newest_metadata(table) if table.form == ICEBERG else "",
        "types": table.types,
        "questions": describe(table.questions),
    }


def _newest_metadata(table: ReaderTable) -> str:
    """The newest metadata file of the table's Iceberg mirror, whose names begin with growing numbers."""
    return max(str(path) for path in Path(f"{table.hudi_path.rstrip('/')}_iceberg", "metadata").glob("*.metadata.json"))
