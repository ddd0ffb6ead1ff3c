"""`python -m tests.planning.histories --count 1000 [--seed 7]`: drawn histories of puts, splits, merges and batches.

Each is planned by the package's own functions, over shards that are told here; a batch may be given up, as a killed one
is, and then its ranges are read again. Rows are merged as an upsert without an ordering field does: batch by batch, in
a batch by shard and cursor. At the end each key has to hold what was put last.
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import dataclass, field

from airflow_provider_slshudi.config.pipeline import Batch
from airflow_provider_slshudi.planning.batches import plan_tail
from airflow_provider_slshudi.planning.ranges import Density, Range, merge
from airflow_provider_slshudi.planning.shard_order import Keys, waiting
from airflow_provider_slshudi.planning.windows import ShardWindow, unread

TOP = 1 << 16
_MOST_BATCHES = 10_000


@dataclass
class Shard:
    """A shard of hash keys [begin, end), and its logs: the key and the number of the put."""

    id: int
    begin: int
    end: int
    base: int
    open: bool = True
    logs: list[tuple[int, int]] = field(default_factory=list)

    @property
    def last(self) -> int:
        """The cursor of the next log."""
        return self.base + len(self.logs)


class History:
    """One drawn history.

    Args:
        seed: what is drawn.
        splits: whether shards are split and merged.
        ordered: whether shards wait for older ones, as in the package.
    """

    def __init__(self, seed: int, splits: bool = True, ordered: bool = True) -> None:
        self.rng, self.splits, self.ordered = random.Random(seed), splits, ordered
        count = self.rng.randrange(1, 5)
        edges = [TOP * number // count for number in range(count + 1)]
        self.shards = [
            Shard(number, edges[number], edges[number + 1], self.rng.randrange(1, 1 << 40)) for number in range(count)
        ]
        self.keys = [self.rng.randrange(TOP) for _ in range(self.rng.randrange(1, 30))]
        self.sizes = {number: float(self.rng.choice((1, 10, 1_000))) for number in range(200)}
        self.covered: list[Range] = []
        self.put_last: dict[int, int] = {}
        self.rows: dict[int, int] = {}
        self.puts = self.batches = 0

    def run(self) -> list[int]:
        """The keys that do not hold what was put last."""
        for _ in range(self.rng.randrange(5, 40)):
            what = self.rng.choices(("put", "split", "merge", "batch"), (6, 1, 1, 3))[0]
            getattr(self, f"_{what}")()
        while self._batch(abort=False):
            if self.batches > _MOST_BATCHES:
                raise AssertionError("there is always something unread, or a shard waits for ever")
        if left := self._unread():
            raise AssertionError(f"nothing is planned, and {left} are unread")
        return [key for key, number in self.put_last.items() if self.rows.get(key) != number]

    def _put(self) -> None:
        for _ in range(self.rng.randrange(1, 40)):
            key = self.rng.choice(self.keys)
            shard = next(item for item in self.shards if item.open and item.begin <= key < item.end)
            self.puts += 1
            shard.logs.append((key, self.puts))
            self.put_last[key] = self.puts

    def _add(self, begin: int, end: int) -> None:
        self.shards.append(Shard(len(self.shards), begin, end, self.rng.randrange(1, 1 << 40)))

    def _split(self) -> None:
        wide = [item for item in self.shards if item.open and item.end - item.begin > 1]
        if self.splits and wide and len(self.shards) < 100:
            shard = self.rng.choice(wide)
            shard.open, middle = False, self.rng.randrange(shard.begin + 1, shard.end)
            self._add(shard.begin, middle)
            self._add(middle, shard.end)

    def _merge(self) -> None:
        taking = [item for item in self.shards if item.open]
        pairs = [(one, two) for one in taking for two in taking if one.end == two.begin]
        if self.splits and pairs and len(self.shards) < 100:
            one, two = self.rng.choice(pairs)
            one.open = two.open = False
            self._add(one.begin, two.end)

    def _unread(self) -> list[Range]:
        return unread(((item.id, item.base, item.last) for item in self.shards), self.covered)

    def _batch(self, abort: bool | None = None) -> bool:
        """Plans a batch and commits it, or gives it up; gives whether there was one."""
        left = {item.shard for item in self._unread()}
        known = (
            Keys(item.id, f"{item.begin:032x}", f"{item.end:032x}", not item.open and item.id not in left)
            for item in self.shards
        )
        held = waiting(known) if self.ordered else frozenset[int]()
        windows = [ShardWindow(item.id, item.base, item.base, item.last) for item in self.shards]
        density = {item.id: Density(self.sizes[item.id], 1.0) for item in self.shards}
        limits = Batch(max_bytes=self.rng.choice((1, 50, 5_000, 10**9)))
        planned = plan_tail("p", windows, self.covered, density, limits, "fail", held=held)
        self.batches += bool(planned)
        if self.rng.random() < 0.3 if abort is None else abort:
            return bool(planned)
        for item in sorted(planned):
            shard = self.shards[item.shard]
            for key, number in shard.logs[item.begin - shard.base : item.end - shard.base]:
                self.rows[key] = number
        self.covered = merge([*self.covered, *planned])
        return bool(planned)


def main() -> int:
    """Runs them; the exit code says whether all is well."""
    parser = argparse.ArgumentParser(prog="python -m tests.planning.histories", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=None, help="the first history's seed")
    parser.add_argument("--unordered", action="store_true", help="no shard waits: shows that histories find it")
    options = parser.parse_args()
    first = random.randrange(1 << 32) if options.seed is None else options.seed
    wrong, shards = [], 0
    for seed in range(first, first + options.count):
        history = History(seed, ordered=not options.unordered)
        if history.run():
            wrong.append(seed)
        shards += len(history.shards)
    plain = [History(seed, splits=False) for seed in range(first, first + options.count)]
    loose = [History(seed, splits=False, ordered=False) for seed in range(first, first + options.count)]
    for history in (*plain, *loose):
        history.run()
    batches = sum(item.batches for item in plain), sum(item.batches for item in loose)
    figures = f"{shards} shards: {len(wrong)} with a key that is not its last put"
    print(f"histories: {options.count} from seed {first}, {figures}")
    print(f"without splits: {batches[0]} batches, {batches[1]} where no shard ever waits")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
