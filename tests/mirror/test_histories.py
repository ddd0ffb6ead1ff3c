"""Histories drawn from a seed: whatever happens between two runs, the mirrors then show the table's rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from airflow_provider_slshudi.services.mirrors import release
from tests.mirror.conftest import Mirrored
from tests.mirror.tables import counted
from tests.mirror.test_mending import _appended, _deleted, _dropped, _expired, _taken_back, failing
from tests.needs import DELTALAKE

pytest.importorskip("deltalake", reason=DELTALAKE)
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

DAYS = ("a", "b/c", None)
STEPS = 60
Rows = list[dict[str, Any]]


@dataclass
class World:
    """A table, and which file has which rows."""

    table: Mirrored
    rng: random.Random
    live: dict[str, tuple[dict[str, Any], Rows]] = field(default_factory=dict)
    superseded: list[str] = field(default_factory=list)
    pending: list[tuple[str, list[dict[str, Any]], list[Rows]]] = field(default_factory=list)
    undo: tuple[str, list[str], dict[str, tuple[dict[str, Any], Rows]]] | None = None
    number: int = 0

    def rows(self, day: str | None, least: int = 1) -> Rows:
        count = self.rng.randint(least, 3)
        self.number += count
        return [{"n": self.number - one, "day": day} for one in range(count)]

    def committed(self, instant: str, before: dict[str, Any], *stats: dict[str, Any]) -> None:
        self.undo = instant, [str(stat["path"]) for stat in stats], before

    def append(self) -> None:
        before, files = dict(self.live), [self.rows(self.rng.choice(DAYS)) for _ in range(self.rng.randint(1, 3))]
        stats = self.table.made.append(*files)
        self.live |= {str(stat["path"]): (stat, rows) for stat, rows in zip(stats, files, strict=True)}
        self.committed(instant_of(stats[0]), before, *stats)

    def update(self) -> None:
        if not self.live:
            return
        before, path = dict(self.live), self.rng.choice(list(self.live))
        stat, old = self.live.pop(path)
        rows = self.rows(old[0]["day"], 0) if old else []
        if not rows and not old:
            self.live[path] = stat, old
            return
        updated = self.table.made.update(stat, rows)
        self.live[str(updated["path"])] = updated, rows or [{"n": None, "day": old[0]["day"]}][:0]
        self.superseded.append(path)
        self.committed(instant_of(updated), before, updated)

    def cluster(self) -> None:
        day = self.rng.choice(DAYS)
        chosen = [path for path, (_, rows) in self.live.items() if rows and rows[0]["day"] == day]
        if len(chosen) < 2:
            return
        before, old = dict(self.live), [self.live.pop(path) for path in chosen]
        rows = [row for _, some in old for row in some]
        stat = self.table.made.cluster([one for one, _ in old], rows)
        self.live[str(stat["path"])] = stat, rows
        self.superseded += chosen
        self.committed(instant_of(stat), before, stat)

    def begin(self) -> None:
        instant, rows = self.table.made.begin(), self.rows(self.rng.choice(DAYS))
        self.pending.append((instant, [self.table.made.write(instant, rows)], [rows]))

    def complete(self) -> None:
        if self.pending:
            instant, stats, files = self.pending.pop(self.rng.randrange(len(self.pending)))
            before = dict(self.live)
            self.table.made.complete(instant, stats)
            self.live |= {str(stat["path"]): (stat, rows) for stat, rows in zip(stats, files, strict=True)}
            self.committed(instant, before, *stats)

    def give_up(self) -> None:
        if self.pending:
            instant, stats, _ = self.pending.pop(0)
            self.table.made.roll_back(instant, *(str(stat["path"]) for stat in stats))

    def roll_back(self) -> None:
        """Takes the newest commit back, as an operator may, unless a clean came since."""
        if self.undo is not None:
            instant, files, before = self.undo
            self.table.made.roll_back(instant, *files)
            self.superseded = [path for path in self.superseded if path not in before]
            self.live, self.undo = before, None

    def clean(self) -> None:
        leaving, self.superseded, self.undo = self.superseded, [], None
        release(self.table.work, leaving)
        self.table.made.storage.delete_files(leaving)
        self.follow()

    def archive(self) -> None:
        if not self.pending and not self.superseded:
            self.table.made.archive(keep=self.rng.randint(1, 4))
            self.undo = None

    def mess(self) -> None:
        if self.live and self.table.made.storage.exists("_delta_log"):
            self.table.follow()
            with suppress(DeltaError):  # it restores no version whose files were cleaned
                self.rng.choice([_appended, _deleted, _dropped, _expired, _taken_back])(self.table)

    def follow(self) -> None:
        owner, name = self.rng.choice([(SqlCatalog, "commit_table"), (DeltaTable, "create_write_transaction")])
        if self.rng.random() < 0.3:
            with failing(owner, name, self.rng.random() < 0.5):
                self.table.follow()
        self.table.follow()
        rows = [row for _, some in self.live.values() for row in some]
        if not self.table.made.storage.exists("_delta_log"):
            assert not rows
            return
        for reader, seen in self.table.read_by_clients().items():
            assert counted(seen) == counted(rows), reader
        for snapshot in self.table.iceberg.metadata.snapshots:
            self.table.iceberg.scan(snapshot_id=snapshot.snapshot_id).to_arrow()


def instant_of(stat: dict[str, Any]) -> str:
    return str(stat["path"]).rpartition("_")[2].removesuffix(".parquet")


@pytest.mark.parametrize("seed", range(6))
def test_mirrors_show_the_tables_rows_whatever_happened(mirrored: Callable[..., Mirrored], seed: int) -> None:
    world = World(mirrored(keep=3), random.Random(seed))
    steps = [
        *[world.append, world.update] * 4,
        *[world.cluster, world.begin, world.complete, world.follow] * 2,
        world.give_up,
        world.roll_back,
        world.clean,
        world.archive,
        world.mess,
    ]
    history = []
    for _ in range(STEPS):
        step = world.rng.choice(steps)
        history.append(step.__name__)
        try:
            step()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {' '.join(history)}") from error
    world.follow()
