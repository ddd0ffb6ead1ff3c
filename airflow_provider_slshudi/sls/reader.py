"""Reads pinned ranges to their ends: the next pull of each is in flight while the caller works on the one before."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import pyarrow as pa

from airflow_provider_slshudi.exceptions import (
    DataExpired,
    DecodeError,
    SourceCorrupt,
    SourceError,
    SourceRefused,
    SourceUnavailable,
)
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.sls.faults import retry
from airflow_provider_slshudi.sls.pace import Pacer
from airflow_provider_slshudi.sls.pieces import decoded
from airflow_provider_slshudi.sls.service import LogService, Pull


class _Reading:
    """A range that is being read: its next pull is in flight until the last one has come."""

    def __init__(self, pull: Callable[[Range], Pull], range: Range) -> None:
        self._pull, self._range = pull, range
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="sls-pull")
        self.pending: Future[Pull] | None = self._executor.submit(pull, range)

    def next(self) -> Pull | None:
        """Waits for the pull in flight and asks for the one after it; None after the last one."""
        if self.pending is None:
            return None
        pull = self.pending.result()
        self.pending = None
        if pull.next != self._range.end:
            remainder = Range(self._range.shard, pull.next, self._range.end)
            self.pending = self._executor.submit(self._pull, remainder)
        return pull

    def close(self) -> None:
        """Lets go of what is in flight."""
        self._executor.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True)
class Reader:
    """Reads ranges for `pipeline`, whose name errors carry, at the pace of `pacer` (None: as fast as it can).

    One that `skips` gives a pull that is `lost` for log groups that are gone, where others raise DataExpired.
    """

    service: LogService
    pipeline: str
    pacer: Pacer | None = None
    skips: bool = False

    def tables(self, range: Range, keys: Sequence[str]) -> Iterator[tuple[Pull, pa.Table]]:
        """The pulls of `range`, each with its logs as `decode` gives them.

        A body that does not decode is asked for again, since it may have been damaged on its way. Raises as
        `pulls`, and DecodeError where the answer is the same again.
        """
        for pull in self.pulls(range):
            yield from self.decoded(pull, keys)

    def pulls(self, range: Range) -> Iterator[Pull]:
        """Pulls that together hold exactly the log groups of `range`; ends at `range.end` and nowhere else.

        At most two pulls are in memory: the caller's and the next one. An empty answer inside the range is repeated
        within the service's patience, since the range's end existed when it was pinned. Raises DataExpired for log
        groups that are gone, SourceCorrupt for other gaps, SourceRefused for a range beyond the end of a closed
        shard, and all that `LogService.pull` raises.
        """
        reading = self.start(range)
        try:
            while (pull := reading.next()) is not None:
                yield pull
                del pull  # the caller has let go of it by now: the pull in flight is the second one, not the third
        finally:
            reading.close()

    def decoded(self, pull: Pull, keys: Sequence[str]) -> Iterator[tuple[Pull, pa.Table]]:
        """A pull with its logs; several if the pull is wide (see `sls.pieces`), or if its body was asked for again and
        came in several answers. One that is lost has no logs.

        Raises as `tables`.
        """
        is_begun = False
        try:
            for piece in decoded(pull, keys):
                is_begun = True
                yield piece
        except DecodeError:
            if is_begun:  # the caller has some of the logs: the task fails, and another attempt reads all
                raise
            for again in self.pulls(Range(pull.shard, pull.begin, pull.next)):
                if again == pull:
                    raise
                yield from self.decoded(again, keys)

    def start(self, range: Range) -> _Reading:
        """Asks for the first pull of `range`."""
        return _Reading(self._pull, range)

    def _pull(self, left: Range) -> Pull:
        """The next log groups of what is left of a range, one at least, or those that are lost."""
        try:
            return self._pulled(left)
        except DataExpired as gone:
            if not self.skips:
                raise
            return Pull(left.shard, gone.begin, gone.end, 0, 0, b"", lost=True)

    def _pulled(self, left: Range) -> Pull:
        def attempt() -> Pull:
            pull = self.service.pull(left.shard, left.begin, left.end, pacer=self.pacer)
            if pull.next == left.begin:
                raise self._empty(left)
            if pull.next != left.begin + pull.groups:
                message = f"{pull.groups} log groups but the next cursor {pull.next}: log groups are missing"
                raise self._lost(left, self.service.error(SourceCorrupt, message, left.shard, left.begin))
            return pull

        try:
            return retry(self.service.patience, attempt)
        except SourceRefused as refused:
            raise self._lost(left, refused) from refused

    def _empty(self, left: Range) -> SourceError:
        """The error for an empty answer: final at the end of a closed shard, else one that may pass."""
        end = self.service.end(left.shard)
        closed = end <= left.begin and any(
            shard.id == left.shard and shard.status == "readonly" for shard in self.service.shards()
        )
        if closed:
            message = f"the shard is closed and ends at {end}, before the range's end {left.end}: refresh the shards"
            return self.service.error(SourceRefused, message, left.shard, left.begin, code="ShardEnded")
        message = f"no log groups before the end {left.end} of a pinned range"
        return self.service.error(SourceUnavailable, message, left.shard, left.begin)

    def _lost(self, left: Range, otherwise: SourceError) -> Exception:
        """DataExpired where the oldest log group kept is beyond the range's begin; else, or if unknown, `otherwise`."""
        try:
            oldest = self.service.begin(left.shard)
        except SourceError:
            return otherwise
        if oldest <= left.begin:
            return otherwise
        return DataExpired(self.pipeline, left.shard, left.begin, min(oldest, left.end))


def together(readers: Mapping[int, Reader], ranges: Iterable[Range], at_once: int) -> Iterator[tuple[Range, Pull]]:
    """Reads up to `at_once` shards at the same time; yields the pulls of all `ranges` as they come, with their ranges.

    A shard gives ten megabytes a second, and a core works off thirty times as many. Ranges of one shard share its
    reader's pace, so they are read one after the other. Memory holds the caller's pull and one of each shard that is
    being read. Raises as `Reader.pulls`.
    """
    shards: dict[int, deque[Range]] = {}
    for item in ranges:
        shards.setdefault(item.shard, deque()).append(item)
    chains, started = deque(shards.values()), list[tuple[Range, _Reading]]()

    def start(chain: deque[Range]) -> None:
        item = chain.popleft()
        started.append((item, readers[item.shard].start(item)))

    try:
        while chains or started:
            while chains and len(started) < at_once:
                start(chains.popleft())
            wait([reading.pending for _, reading in started if reading.pending], return_when=FIRST_COMPLETED)
            # The range that has waited longest comes first.
            place = next(
                index for index, (_, reading) in enumerate(started) if reading.pending and reading.pending.done()
            )
            item, reading = started[place]
            pull = reading.next()
            del started[place]
            if reading.pending:
                started.append((item, reading))
            else:
                reading.close()
                if shards[item.shard]:
                    start(shards[item.shard])
            if pull is not None:
                yield item, pull
            del pull
    finally:
        for _, reading in started:
            reading.close()
