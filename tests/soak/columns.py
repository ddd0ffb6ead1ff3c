"""Columns that change while batches run and drivers die, beside a model.

Before each batch the pipeline's file changes at random: columns are added, widened, renamed, dropped and come back,
and sometimes it asks for what must be refused. Some runs die, by SIGKILL of their driver or between two steps; the
file changes once more before anybody recovers them. In the end Spark and hudi-rs have to show the rows of a model in
plain Python, every log once, each with the columns that the file had when its batch was opened.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from aliyun.log import LogItem, PutLogsRequest

from airflow_provider_slshudi.config.datatypes import Struct, parse_type
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import ColumnMismatch, SlsHudiError
from airflow_provider_slshudi.ledger.records import State, Transaction
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.transaction import plan
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.settle import settle
from tests.crash.cases import BATCH, Step
from tests.exact.outcome import Outcome, compared
from tests.exact.step import STEPS
from tests.exact.world import new_scenario
from tests.hudi.readings import READINGS, by_spark, plain
from tests.pipelines import ad_events
from tests.scenarios import PROJECT, DyingLauncher, Scenario, SessionLauncher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGS_PER_BATCH = 20
_START = 1_767_225_600_000
_DAY = 86_400_000

# By the key of a log: the types that a column of it may have, each one wider than those before it.
CHAINS: dict[str, list[list[str]]] = {
    "number": [["int", "bigint"], ["int", "double"]],
    "ratio": [["float", "double"]],
    "amount": [["decimal(7,2)", "decimal(9,2)", "decimal(13,3)"], ["decimal(7,2)", "decimal(10,3)"]],
    "flag": [["boolean"], ["string"]],
    "day": [["date"], ["string"]],
    "document": [["struct<a:int>", "struct<a:int,b:string>", "struct<b:string,c:boolean>"]],
    "word": [["string"], ["binary"]],
}
NARROWER = {"bigint": "int", "double": "boolean", "string": "date", "decimal(9,2)": "decimal(7,2)"}
"""What a column must not become."""


def text_of(key: str, number: int) -> str:
    """What log `number` has under a key; now and then nothing that the narrowest type takes."""
    odd = number % 7 == 3
    texts = {
        "number": str(2**40 + number if odd else number),
        "ratio": f"{number}.5",
        "amount": f"{1_000_000 if odd else number}.25",
        "flag": "maybe" if odd else str(number % 2 == 0).lower(),
        "day": "soon" if odd else f"2026-01-{number % 28 + 1:02}",
        "document": f'{{"a": {number}, "b": "b{number}", "c": {str(odd).lower()}}}',
        "word": f"word {number}",
    }
    return texts[key]


def value_of(key: str, type_: str, number: int) -> Any:
    """The value that a column of the type has for log `number`, and None where its text does not fit."""
    odd, text = number % 7 == 3, text_of(key, number)
    match type_:
        case "int":
            return None if odd else int(text)
        case "bigint":
            return int(text)
        case "float" | "double":
            return float(text)
        case "decimal(7,2)":
            return None if odd else Decimal(text)
        case "boolean":
            return None if odd else text == "true"
        case "date":
            return None if odd else date.fromisoformat(text)
        case "binary":
            return text.encode()
        case "string":
            return text
    if type_.startswith("decimal"):
        return Decimal(text)
    document = {"a": number, "b": f"b{number}", "c": odd}
    struct = parse_type(type_)
    assert isinstance(struct, Struct)
    return {name: document[name] for name, _ in struct.fields}


def seen_as(value: Any, before: str, after: str) -> Any:
    """A value that was written as one type, read as a wider one."""
    if value is None or before == after:
        return value
    struct = parse_type(after)
    if isinstance(struct, Struct):
        return {name: value.get(name) for name, _ in struct.fields}
    return float(value) if after == "double" else value


def joined(one: str, other: str) -> str:
    """The type of a table's column after a batch that has it as `other`: of structs all fields, else the new type."""
    first, second = parse_type(one), parse_type(other)
    if isinstance(first, Struct) and isinstance(second, Struct):
        return str(Struct(tuple({**dict(first.fields), **dict(second.fields)}.items())))
    return other


@dataclass
class Column:
    """A column of the file: its place in a chain of types, and the former names that it also has."""

    name: str
    key: str
    chain: list[str]
    place: int = 0
    former: list[str] = field(default_factory=list)

    @property
    def type(self) -> str:
        """As the file has it."""
        return self.chain[self.place]

    def described(self) -> dict[str, Any]:
        """As the file has it."""
        return {"name": self.name, "type": self.type, "key": self.key, "renamed_from": self.former}


class File:
    """The pipeline's file, which changes, and the columns that it once had."""

    def __init__(self, chance: random.Random) -> None:
        self._chance, self._made = chance, 0
        self.columns: list[Column] = []
        self.gone: list[Column] = []
        self.done: Counter[str] = Counter()
        for key in ("number", "amount", "document"):
            self.add(key)

    def change(self, table: Mapping[str, str], wanted: str | None = None) -> None:
        """One change of what makes `table` by now, the `wanted` one where that is possible."""
        ways: dict[str, Callable[[], bool]] = {
            "add": self.add,
            "widen": self.widen,
            "rename": lambda: self.rename(table),
            "drop": self.drop,
            "return": self.come_back,
            "reorder": self.reorder,
        }
        order = [wanted] if wanted else []
        order += self._chance.sample(list(ways), len(ways))
        made = next(way for way in order if ways[way]())
        self.done[made] += 1

    def add(self, key: str = "") -> bool:
        key = key or self._chance.choice(list(CHAINS))
        new = Column(self._name(), key, self._chance.choice(CHAINS[key]))
        self.columns.insert(self._chance.randint(0, len(self.columns)), new)
        return True

    def widen(self) -> bool:
        able = [column for column in self.columns if column.place + 1 < len(column.chain)]
        if able:
            self._chance.choice(able).place += 1
        return bool(able)

    def rename(self, table: Mapping[str, str]) -> bool:
        column = self._chance.choice(self.columns)
        # Former names are given up at random: then the table has NULL under them.
        kept = [name for name in column.former if self._chance.random() < 0.5]
        self._forget(column, [name for name in column.former if name not in kept])
        # The table may know nothing yet of a name, be it that a batch is dead that would have told it.
        column.former = [name for name in (column.name, *kept) if name in table]
        column.name = self._name()
        return True

    def drop(self) -> bool:
        if len(self.columns) < 3:
            return False
        column = self.columns.pop(self._chance.randrange(len(self.columns)))
        self._forget(column, [column.name, *column.former])
        return True

    def come_back(self) -> bool:
        if not self.gone:
            return False
        self.columns.append(self.gone.pop(self._chance.randrange(len(self.gone))))
        return True

    def reorder(self) -> bool:
        self._chance.shuffle(self.columns)
        return True

    def narrowed(self, table: Mapping[str, str]) -> list[dict[str, Any]] | None:
        """The columns with one that is to be refused; None where there is none that could be."""
        able = [column for column in self.columns if column.type in NARROWER and table.get(column.name) == column.type]
        if not able:
            return None
        wrong = self._chance.choice(able)
        return [
            {**column.described(), "type": NARROWER[column.type]} if column is wrong else column.described()
            for column in self.columns
        ]

    def _forget(self, column: Column, names: list[str]) -> None:
        self.gone += [Column(name, column.key, column.chain, column.place) for name in names]

    def _name(self) -> str:
        self._made += 1
        return f"c{self._made}"


class Soak:
    """A pipeline, its file, and the model of its table."""

    def __init__(self, scenario: Scenario, spark: SparkSession, seed: int, outcome: Outcome) -> None:
        self._scenario, self._spark, self._chance = scenario, spark, random.Random(seed)
        self.file, self.outcome = File(self._chance), outcome
        self._rows: dict[int, dict[str, tuple[str, Any]]] = {}
        self._types: dict[str, str] = {}
        self._waiting: list[int] = []
        self._undecided: tuple[Transaction, list[int], list[Column]] | None = None
        self._runs = 0

    def batch(self, death: str | Point | None = None, change: str | None = None) -> None:
        """Changes the file, puts logs, and runs a batch that may die on its way."""
        if self._runs:
            self.file.change(self._types, change)
        if self._chance.random() < 0.3:
            self._try_refused()
        self._put()
        work = self._work(self._described())
        settle(work, lambda run: True)
        self._decided()
        logs, columns = list(self._waiting), [replace(column) for column in self.file.columns]
        dying = replace(work, launcher=DyingLauncher(death)) if isinstance(death, Point) else work
        planned = plan.tail(dying)
        assert planned is not None
        self._undecided = planned, logs, columns
        self.outcome.figures["batches"] += 1
        with suppress(_Died):
            self._go_on(dying, planned, death)
        if death is None:
            self._decided()
            assert self._undecided is None
        else:
            self.outcome.figures[f"dead at {death.value if isinstance(death, Point) else death}"] += 1

    def finish(self) -> None:
        """A last healthy batch, then every reader beside the model."""
        self.batch()
        self.outcome.notes += [f"{count} {name}" for name, count in sorted(self.file.done.items())]
        proof = verify(self._work(self._described()))
        if not proof.ok or proof.rows != len(self._rows):
            self.outcome.wrong.append(f"{proof.rows} rows of {len(self._rows)} logs: {proof.complaint()}")
        names = sorted(self._types)
        wanted = {
            f"event-{number}": {
                name: seen_as(row[name][1], row[name][0], self._types[name]) if name in row else None for name in names
            }
            for number, row in self._rows.items()
        }
        for reader, rows in self._readings(names).items():
            events = {f"event-{number}" for number in range(self.outcome.logs)}
            self.outcome.match(compared(reader, (row["event_id"] for row in rows), events))
            found = {row["event_id"]: {name: row[name] for name in names} for row in rows}
            differ = [
                f"{reader}: {event}.{name} is {found.get(event, {}).get(name)!r}, not {wanted[event][name]!r}"
                for event in wanted
                for name in names
                if found.get(event, {}).get(name) != wanted[event][name]
            ]
            self.outcome.wrong += differ[:3]

    def _go_on(self, work: Work, planned: Transaction, death: str | Point | None) -> None:
        try:
            for step in BATCH[2:]:
                STEPS[step](work, planned.id, planned.token)
                if death is not None and death == AFTER.get(step):
                    return
        except SlsHudiError as error:
            if not isinstance(death, Point):
                raise
            raise _Died from error

    def _decided(self) -> None:
        """Takes over into the model what became of the last batch."""
        if self._undecided is None:
            return
        planned, logs, columns = self._undecided
        state = self._scenario.work.ledger.get(planned.id).state
        if state is State.COMMITTED:
            for column in columns:
                for name in (column.name, *column.former):
                    self._types[name] = joined(self._types.get(name, column.type), column.type)
            for number in logs:
                self._rows[number] = {
                    name: (column.type, value_of(column.key, column.type, number))
                    for column in columns
                    for name in (column.name, *column.former)
                }
            self._waiting = [number for number in self._waiting if number not in self._rows]
        if state in (State.COMMITTED, State.ABORTED):
            self._undecided = None

    def _try_refused(self) -> None:
        """A file that asks for what cannot be is refused by plan, before anything is written."""
        narrowed = self.file.narrowed(self._types)
        if narrowed is None:
            return
        work = self._work(narrowed)
        before = work.ledger.live(work.pipeline.name)
        with suppress(ColumnMismatch):
            plan.tail(work)
            self.outcome.wrong.append(f"plan took {narrowed} for {self._types}")
        assert work.ledger.live(work.pipeline.name) == before
        self.outcome.figures["files refused"] += 1

    def _put(self) -> None:
        numbers = range(self.outcome.logs, self.outcome.logs + LOGS_PER_BATCH)
        self.outcome.logs += len(numbers)
        self._waiting += numbers
        source = self._scenario.work.pipeline.source
        for start in numbers[::5]:
            items = [
                LogItem(
                    1_700_000_000 + number,
                    contents=[
                        ("event_id", f"event-{number}"),
                        ("ts", str(_START + number % 3 * _DAY)),
                        *((key, text_of(key, number)) for key in CHAINS),
                    ],
                )
                for number in range(start, start + 5)
            ]
            self._scenario.client.put_logs(PutLogsRequest(source.project, source.logstore, "ads", "10.0.0.1", items))

    def _described(self) -> list[dict[str, Any]]:
        return [column.described() for column in self.file.columns]

    def _work(self, columns: list[dict[str, Any]]) -> Work:
        self._runs += 1
        return self._scenario.by(f"run-{self._runs}", pipeline=_with(self._scenario.work.pipeline, columns))

    def _readings(self, names: list[str]) -> dict[str, list[dict[str, Any]]]:
        from hudi import HudiTableBuilder

        storage = self._scenario.work.storage
        found: dict[str, list[dict[str, Any]]] = {}
        for how, reading in READINGS.items():
            rows = by_spark(self._spark, storage.full(""), reading, ["event_id", *names])
            found[f"Spark {how}"] = [plain(row) for row in rows]
        found["hudi-rs"] = pa.Table.from_batches(HudiTableBuilder.from_base_uri(storage.uri).build().read()).to_pylist()
        return found


class _Died(Exception):
    """The run is dead."""


def _with(pipeline: Pipeline, columns: list[dict[str, Any]]) -> Pipeline:
    fixed = [{"name": "event_id"}, {"name": "event_time", "type": "timestamp", "format": "millis", "key": "ts"}]
    return Pipeline.model_validate({**pipeline.model_dump(mode="json"), "columns": [*fixed, *columns]})


AFTER = {Step.OPEN: "OPEN", Step.RECORD: "PREPARED"}
"""Between which steps a run may die."""
DEATHS: tuple[str | Point, ...] = (
    *AFTER.values(),
    Point.APPEND_WRITTEN,
    Point.COMMIT_STARTED,
    Point.COMMIT_COMPLETED,
)


def soak(scenario: Scenario, spark: SparkSession, seed: int, batches: int, kills: int, outcome: Outcome) -> None:
    """Runs so many batches, of which `kills` die by SIGKILL and twice as many between two steps."""
    running = Soak(scenario, spark, seed, outcome)
    chance = random.Random(seed)
    deaths = [death for death in DEATHS if isinstance(death, Point)]
    dying: list[str | Point] = [deaths[number % len(deaths)] for number in range(kills)]
    dying += [chance.choice([*AFTER.values()]) for _ in range(2 * kills)]
    # A dead batch is followed by another one, be it a dead one too; the first makes the table.
    fates: list[str | Point | None] = [*dying, *[None] * max(0, batches - len(dying))]
    chance.shuffle(fates)
    wanted = ["add", "widen", "rename", "drop", "return"]
    running.batch()
    for number, fate in enumerate(fates):
        running.batch(fate, wanted[number % len(wanted)])
    running.finish()


def new_table(server: LocalSls, spark: SparkSession, folder: Path) -> Scenario:
    """A logstore, a table and a ledger of their own below `folder`."""
    pipeline = ad_events(folder / "lake" / "columns", source={"project": PROJECT, "logstore": "columns"})
    return new_scenario(pipeline, f"sqlite:///{folder / 'ledger.db'}", server, SessionLauncher(spark), 2)
