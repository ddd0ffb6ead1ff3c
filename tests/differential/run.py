"""One random table after the other, each asked by every reader."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_slshudi.hudi.client.gateway import Gateway
from tests.differential import filters, readers, tables, twin
from tests.differential.faults import fault_of
from tests.differential.filters import Compare
from tests.differential.lies import LIES
from tests.differential.readers import OPTIONS, SETTINGS, Asked, Spark
from tests.differential.tables import Table
from tests.sessions import start_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LIED_TABLES = 30
"""In so many tables a lie has to be found."""
WITH_TWIN = 0.25
"""So many of the tables are also written by Hudi's own writer, besides those that show a reader's fault."""


@dataclass
class Outcome:
    """How many queries of how many tables, and what was wrong: by readers' own faults, and otherwise.

    `on_twins` is how often a fault was looked for on a table by Hudi's own writer, and `shown` how often it was there.
    """

    tables: int = 0
    queries: int = 0
    known: Counter[str] = field(default_factory=Counter)
    on_twins: Counter[str] = field(default_factory=Counter)
    shown: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, seed: int, table: Table, asked: Sequence[Asked]) -> list[tuple[str, Asked]]:
        """Counts queries; what is wrong with them is kept. Gives those of readers' own faults."""
        self.queries += len(asked)
        wrong = [(fault_of(item, table), item) for item in asked if not item.ok]
        self.wrong += [_told(seed, table, item) for fault, item in wrong if fault is None]
        faults = [(fault, item) for fault, item in wrong if fault is not None]
        self.known.update(fault for fault, _ in faults)
        return faults

    def join(self, other: Outcome) -> None:
        """Adds another's."""
        self.tables += other.tables
        self.queries += other.queries
        self.known += other.known
        self.on_twins += other.on_twins
        self.shown += other.shown
        self.wrong += other.wrong

    def __str__(self) -> str:
        told = "".join(
            f"\n  {count:6} {name} (on twins {self.shown[name]} of {self.on_twins[name]})"
            for name, count in self.known.most_common()
        )
        return (
            f"differential: {self.tables} tables, {self.queries} queries, {len(self.wrong)} wrong; "
            f"readers' own faults: {sum(self.known.values())}{told}"
        )


def one(spark: SparkSession, folder: Path, seed: int, lie: str | None = None) -> Outcome:
    """Makes a table from a seed, with a lie perhaps, and has it asked; without one it is left where it is wrong."""
    outcome = Outcome(1)
    rng, gateway = random.Random(seed), Gateway.of(spark.sparkContext)
    planted, afterwards = LIES[lie] if lie is not None else (nullcontext, None)
    with planted():
        table = Table(gateway, folder / f"table-{seed}", tables.draw(rng), rng)
        tables.history(table, rng, rng.randrange(1, 6))
        if afterwards is not None:
            afterwards(table)
    try:
        ask(spark, gateway, table, rng, seed, outcome)
    except Exception as error:
        if lie is None:
            raise
        outcome.wrong.append(f"table {seed}: {error}"[:300])
    if lie is not None or not outcome.wrong:
        shutil.rmtree(table.folder)
    return outcome


@cache
def _spark() -> SparkSession:
    return start_spark()


def asked(folder: Path, seed: int) -> Outcome:
    """One table, in this process's own Spark."""
    return one(_spark(), folder, seed)


def found(folder: Path, seed: int, lie: str) -> int | None:
    """After how many tables a lie was found; None: it was not.

    Raises:
        RuntimeError: something else is wrong with that table, without the lie.
    """
    folder = folder / lie.replace(" ", "-")
    for number in range(LIED_TABLES):
        if one(_spark(), folder, seed + number, lie).wrong:
            if without := one(_spark(), folder, seed + number).wrong:
                raise RuntimeError(f"without a lie: {without[0]}")
            return number + 1
    return None


def ask(session: SparkSession, gateway: Gateway, table: Table, rng: random.Random, seed: int, outcome: Outcome) -> None:
    """Every reader's view of the table."""
    spark, faults = Spark(session), list[tuple[str, Asked]]()

    def tell(asked: Sequence[Asked]) -> None:
        faults.extend(outcome.add(seed, table, asked))

    last = table.versions[-1]
    named = last.types
    for setting in SETTINGS:
        options = rng.choice(list(OPTIONS))
        drawn = filters.drawn(rng, named, 8)
        tell(spark.ask(table, last.rows, drawn, f"snapshot {options}", OPTIONS[options], setting))
    before = rng.choice(table.versions)
    as_of, since = readers.views(table, before)
    drawn = filters.drawn(rng, before.types, 4)
    tell(spark.ask(table, before.rows, drawn, "as of", as_of))
    if table.shape.kind != "merge_on_read" and "rewrite" not in table.acts:
        known = 1 + next(number for number, version in enumerate(table.versions) if version is before)
        rows = [row for row in last.rows if row[tables.TOUCHED] >= known]
        tell(spark.ask(table, rows, drawn, "incremental", since))
    if table.shape.kind == "merge_on_read":
        optimized = {"hoodie.datasource.query.type": "read_optimized"}
        tell(spark.ask(table, last.base, drawn, "read optimized", optimized))
    # hudi-rs takes text for a literal, which is none of bytes.
    drawn = filters.drawn(rng, before.types, 40, said=False)
    simple = [item for item in drawn if isinstance(item, Compare) and item.type != "binary"][:6]
    tell(readers.ask_rust(table, last.rows, simple))
    tell(readers.ask_rust(table, before.rows, simple[:2], before.completion))
    files = readers.base_files(gateway, table)
    if files:
        # A column that was added may be in log files alone.
        there = readers.columns_of(files)
        drawn = filters.drawn(rng, {name: type_ for name, type_ in named.items() if name in there}, 18, said=False)
        tell(readers.ask_duckdb(table, files, last.base, drawn))
        tell(readers.ask_polars(table, files, last.base, drawn))
    _compare(spark, table, seed, outcome, "ours")
    if twin.can_be(table) and (faults or rng.random() < WITH_TWIN):
        _ask_twin(session, table, seed, outcome, faults)


def _ask_twin(
    session: SparkSession, table: Table, seed: int, outcome: Outcome, faults: Sequence[tuple[str, Asked]]
) -> None:
    """Whether Hudi's own writer makes the same rows, and its table shows the same faults."""
    with twin.written(session, table) as other:
        _compare(Spark(session), other, seed, outcome, "by Hudi's writer")
        for fault, item in faults:
            shown = twin.is_wrong_too(session, other, item)
            if shown is not None:
                outcome.on_twins[fault] += 1
                outcome.shown[fault] += shown


def _compare(spark: Spark, table: Table, seed: int, outcome: Outcome, whose: str) -> None:
    values, expected = spark.values(table, {}), spark.model_values(table, table.versions[-1].rows)
    outcome.queries += 1
    if values != expected:
        differ = [pair for pair in zip_longest(values, expected) if pair[0] != pair[1]][:2]
        outcome.wrong.append(_told(seed, table, f"values differ, {whose}: {differ}")[:2000])


def _told(seed: int, table: Table, what: object) -> str:
    return f"table {seed} ({table.shape.kind}, {' '.join(table.acts)}): {what}"
