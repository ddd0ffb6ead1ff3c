"""Maintenance of mirrors by other engines: no file of the Hudi table goes, and the next mirror run mends the mirror.

The table is one with a pending batch, whose files no snapshot names: the first that a clean-up would take. Its files
are made old first, since engines spare those of the last days. One act is known to do damage: docs/pipeline.md warns.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from airflow_provider_slshudi.spark.packages import environment
from tests.machine import ROOT
from tests.readers.ask import ask
from tests.readers.cells import RIGHT, compare
from tests.readers.engines.harness import ANSWER
from tests.readers.engines.trino import query
from tests.readers.mirrors import CATALOG, NAMESPACE, with_mirrors
from tests.readers.place import Place
from tests.readers.readers import READERS, Reader, Services
from tests.readers.tables import DELTA, ICEBERG, VERSIONS, ReaderTable
from tests.readers.trinoserver import register_delta

KIND = "pending"
_SHOWN = 160
_HOURS = 168
"""The seven days that Delta's clean-ups in Spark and Trino keep at least, by default."""


@dataclass(frozen=True)
class Act:
    """What one engine is told to do to a mirror; `is_harmful` where it is known to delete files of the Hudi table."""

    engine: str
    form: str
    statements: Sequence[str]
    is_harmful: bool = False


@dataclass(frozen=True)
class Outcome:
    """What an act did.

    Attributes:
        answers: the engine's answer to each statement.
        lost: files of the Hudi table that are gone.
        mended: whether the mirror shows the table's rows after the next mirror run.
    """

    act: Act
    answers: list[str]
    lost: list[str]
    mended: bool

    @property
    def is_as_known(self) -> bool:
        """No file is gone and the mirror is right again; or files are gone, and the act is known for that."""
        return bool(self.lost) if self.act.is_harmful else self.mended and not self.lost

    @property
    def damage(self) -> str:
        """What became of the Hudi table's files."""
        hidden = sum(name.startswith(".hoodie") for name in self.lost)
        return f"{len(self.lost)} files gone, {hidden} of them in `.hoodie`" if self.lost else "no file gone"

    def __str__(self) -> str:
        told = "; ".join(f"{text}: {answer}" for text, answer in zip(self.act.statements, self.answers, strict=True))
        return f"{self.act.engine}: {told} -> {self.damage}, mirror {'right' if self.mended else 'not right'}"


def acts(table: ReaderTable) -> list[Act]:
    """The acts on a table's mirrors, the mildest first."""
    in_spark, in_trino = f"{CATALOG}.{NAMESPACE}.{table.name}", f"{NAMESPACE}.{table.name}"
    named, now = f"table => '{in_trino}'", f"TIMESTAMP '{datetime.now(timezone.utc):%Y-%m-%d %H:%M:%S}'"
    return [
        Act("Trino", ICEBERG, [_alter(in_trino, "expire_snapshots"), _alter(in_trino, "remove_orphan_files")]),
        Act(
            "Spark",
            ICEBERG,
            [
                f"CALL {CATALOG}.system.expire_snapshots({named}, older_than => {now}, retain_last => 1)",
                f"CALL {CATALOG}.system.remove_orphan_files({named}, older_than => {now})",
            ],
        ),
        Act("Trino", ICEBERG, [f"DROP TABLE {ICEBERG}.{in_trino}"]),
        Act("Spark", ICEBERG, [f"DROP TABLE {in_spark}"]),
        Act("Spark", ICEBERG, [f"DROP TABLE {in_spark} PURGE"]),
        Act("Spark", DELTA, [f"VACUUM delta.`{table.hudi_path}` RETAIN {_HOURS} HOURS"]),
        Act("Trino", DELTA, [f"DROP TABLE {DELTA}.{in_trino}"]),
        Act("Trino", DELTA, [register_delta(table), _vacuum(table, "0s")]),
        Act("Trino", DELTA, [_vacuum(table, f"{_HOURS}h")], is_harmful=True),
    ]


def run(place: Place) -> list[Outcome]:
    """Carries out all acts on one table, with a mirror run behind each; prints what became of each."""
    mirrors = {one.form: one for one in place.made.tables if one.kind == KIND and one.version == VERSIONS[-1]}
    outcomes = []
    for act in acts(mirrors[ICEBERG]):
        outcome = _carried_out(act, place, mirrors[act.form])
        print(f"  {outcome}", flush=True)
        outcomes.append(outcome)
    return outcomes


def _carried_out(act: Act, place: Place, table: ReaderTable) -> Outcome:
    folder = Path(table.hudi_path)
    _make_old(folder)
    before = _files(folder)
    answers = _TELLERS[act.engine](act, place.services)
    lost = sorted(before - _files(folder))
    place.mirrors.follow(with_mirrors(place.made.pipelines[table.name], table.name))
    by_client = _reader("pyiceberg" if act.form == ICEBERG else "deltalake")
    [(_, answer)] = ask(by_client, [table], place.services)
    return Outcome(act, answers, lost, compare(by_client.key, table, answer).kind == RIGHT)


def _files(folder: Path) -> set[str]:
    """The files of the Hudi table; those of the Delta log are the mirror's."""
    files = (path for path in folder.rglob("*") if path.is_file() and "_delta_log" not in path.parts)
    return {str(path.relative_to(folder)) for path in files}


def _vacuum(table: ReaderTable, retention: str) -> str:
    return f"CALL {DELTA}.system.vacuum('{NAMESPACE}', '{table.name}', '{retention}')"


def _make_old(folder: Path) -> None:
    """Files that are older than the days that engines spare by default."""
    past = time.time() - 2 * _HOURS * 3600
    for path in folder.rglob("*"):
        os.utime(path, (past, past))


def _alter(table: str, procedure: str) -> str:
    return f"ALTER TABLE {ICEBERG}.{table} EXECUTE {procedure}(retention_threshold => '0s')"


def _tell_trino(act: Act, services: Services) -> list[str]:
    answers = []
    for statement in act.statements:
        try:
            answers.append(f"done: {query(services.trino, statement)}"[:_SHOWN])
        except RuntimeError as error:
            answers.append(f"refused: {error}"[:_SHOWN])
    return answers


def _tell_spark(act: Act, services: Services) -> list[str]:
    reader = _reader("spark-iceberg-1.9.2" if act.form == ICEBERG else "spark-delta")
    told = {"settings": reader.settings(services), "statements": list(act.statements)}
    done = subprocess.run(
        [str(reader.python()), "-m", "tests.readers.engines.statements"],
        input=json.dumps(told),
        capture_output=True,
        text=True,
        env={**os.environ, **environment(), "PYTHONPATH": str(ROOT)},
    )
    lines = [line.removeprefix(ANSWER) for line in done.stdout.splitlines() if line.startswith(ANSWER)]
    assert len(lines) == len(act.statements), done.stderr[-2000:]
    return [": ".join(json.loads(line))[:_SHOWN] for line in lines]


def _reader(key: str) -> Reader:
    return next(one for one in READERS if one.key == key)


_TELLERS: dict[str, Callable[[Act, Services], list[str]]] = {"Trino": _tell_trino, "Spark": _tell_spark}
