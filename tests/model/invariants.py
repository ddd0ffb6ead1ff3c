"""What has to hold whenever nobody moves, and what once all is quiet."""

from __future__ import annotations

import json
from collections import Counter

from airflow_provider_slshudi.hudi.instant_metadata import RANGES_KEY, TRANSACTION_KEY
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.planning.ranges import Range, merge, overlap
from tests.model.service import fits
from tests.model.table import ModelTable
from tests.model.world import PIPELINE, World


class Broken(AssertionError):
    """A promise is not kept."""


def require(holds: bool, promise: str, *found: object) -> None:
    if not holds:
        raise Broken(f"{promise}: {', '.join(map(str, found))}")


class Invariants:
    """Remembers what was seen, so that a row that vanishes is noticed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._seen: set[str] = set()

    def check(self) -> None:
        world = self._world
        require(not world.surprises, "only errors of the package end a step", *world.surprises)
        if not world.table.base.exists():
            return
        for table in (world.table, world.aside):
            times_of = Counter(instant for instant, *_ in table.commits())
            twice = [instant for instant, times in times_of.items() if times > 1]
            require(not twice, "no instant is completed twice", table.base.name, twice)
        rows = self._rows()
        require(self._seen <= rows, "no row that a reader saw vanishes", self._seen - rows)
        self._seen = rows
        self._ledger()

    def _rows(self) -> set[str]:
        """The rows of both tables."""
        counted: Counter[str] = Counter()
        aside = {instant: files for instant, _, files in self._world.aside.commits()}
        for instant, extra, files in self._world.table.commits():
            found = self._rows_of(self._world.table, instant, files)
            for fitting, rows in (
                (True, found),
                (False, self._rows_of(self._world.aside, instant, aside.get(instant))),
            ):
                wanted = {
                    f"{item.shard}-{cursor}-0"
                    for item in _ranges(extra)
                    for cursor in range(item.begin, item.end)
                    if fits(cursor) is fitting
                }
                if not fitting and instant not in aside:
                    # The main table decides, and comes first.
                    waits = not wanted or instant in self._world.aside.pending_commits()
                    require(waits, "what does not fit is in the quarantine, or about to be", instant)
                    continue
                require(wanted == set(rows), "a commit holds its ranges, whole", instant, wanted ^ set(rows))
                counted += rows
            aside.pop(instant, None)
        require(not aside, "what the quarantine has is in the main table, too", aside)
        doubled = [row for row, times in counted.items() if times > 1]
        require(not doubled, "no row is there twice", doubled)
        return set(counted)

    @staticmethod
    def _rows_of(table: ModelTable, instant: str, files: list[str] | None) -> Counter[str]:
        found: Counter[str] = Counter()
        for file in files or []:
            rows = table.rows(file)
            require(rows is not None, "a committed file is there", instant, file)
            found.update(rows or ())
        return found

    def _ledger(self) -> None:
        ledger = self._world.ledger
        states = {item.id: item for item in ledger.last(PIPELINE, 1000)}
        on_table = {extra[TRANSACTION_KEY]: extra for _, extra, _ in self._world.table.commits()}
        for id_ in on_table:
            state = states[id_].state if id_ in states else None
            require(state in (State.COMMITTED, State.PREPARED), "what is on the table was recorded", id_, state)
        committed = {id_ for id_, item in states.items() if item.state is State.COMMITTED}
        require(committed <= on_table.keys(), "what the ledger calls committed is on the table", committed)
        coverage, reserved = ledger.coverage(PIPELINE), ledger.reserved(PIPELINE)
        aside = {extra[TRANSACTION_KEY] for _, extra, _ in self._world.aside.commits()}
        half = {id_ for id_ in committed - aside if not all(map(fits, _cursors(on_table[id_])))}
        require(not half, "what the ledger calls committed is in the quarantine, too", half)
        wanted = merge(item for id_ in committed for item in _ranges(on_table[id_]))
        require(coverage == wanted, "the coverage is what committed transactions cover", coverage, wanted)
        require(not overlap(coverage, reserved), "nothing is reserved that is covered", coverage, reserved)
        both = sum(map(len, reserved)) - sum(map(len, merge(reserved)))
        require(not both, "nothing is reserved twice", reserved)

    def check_end(self) -> None:
        """Every process wakes or is dead, every run has ended: the pipeline must come back to health by itself."""
        world = self._world
        world.settle_down()
        self.check()
        for number in range(2):
            for shard in (0, 1):
                world.source.put(shard, 1 + number)
            run = world.start_run()
            world.finish()
            require(run.outcome == State.COMMITTED.value, "a batch after all this is a healthy one", run.outcome)
            self.check()
        require(self._seen == world.source.keys(), "every log is there", self._seen ^ world.source.keys())
        require(not world.ledger.live(PIPELINE), "no transaction is live", world.ledger.live(PIPELINE))
        for table in (world.table, world.aside):
            require(not table.pending(), "no instant is pending", table.base.name, table.pending())
            listed = {file for _, _, files in table.commits() for file in files}
            stray = [file for file in table.base_files() if file not in listed and not self._by_hand(file)]
            require(not stray, "no file is there that no commit lists", table.base.name, stray)

    def _by_hand(self, file: str) -> bool:
        """Somebody rolled its instant back while it was written, which nothing can fence."""
        return file.rpartition("_")[2].removesuffix(".parquet") in self._world.by_hand


def _cursors(extra: dict[str, str]) -> list[int]:
    return [cursor for item in _ranges(extra) for cursor in range(item.begin, item.end)]


def _ranges(extra: dict[str, str]) -> list[Range]:
    ranges = json.loads(extra[RANGES_KEY])
    return [Range(int(shard), begin, end) for shard, found in ranges.items() for begin, end, *_ in found]
