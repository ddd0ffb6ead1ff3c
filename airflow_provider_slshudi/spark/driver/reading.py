"""Reads ranges of shards in a Spark task: as rows of the table, with the figures of each range."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.config.sources import Source
from airflow_provider_slshudi.handover.batch_files import RangeDone, Unnamed
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.rows.maker import RowMaker, Rows, RowSpec
from airflow_provider_slshudi.rows.misfits import EXAMPLES
from airflow_provider_slshudi.shaping.masks import HashKey, Masks
from airflow_provider_slshudi.sls.pace import Limits, Pacer
from airflow_provider_slshudi.sls.pieces import decode_piece
from airflow_provider_slshudi.sls.reader import Reader, together
from airflow_provider_slshudi.sls.service import LogService, Pull
from airflow_provider_slshudi.spark.driver.unnamed_keys import UnnamedKeys

SHARDS_AT_ONCE = 8
"""So many shards a task reads at the same time: eighty megabytes a second, and one pull of each in memory."""


@dataclass(frozen=True)
class ReadSpec:
    """The facts that every task needs to read; travels to the executors, without credentials.

    `connect` gives the service within a task; `limits` says for each shard how fast one task may read it; `skips`
    whether log groups that the service dropped since they were planned are told as lost, and stop nothing.
    """

    connect: Callable[[], LogService]
    pipeline: str
    rows: RowSpec
    limits: Mapping[int, Limits]
    skips: bool = False

    @classmethod
    def of(
        cls, connect: Callable[[], LogService], pipeline: Pipeline, planned: int, work: Sequence[Sequence[Range]]
    ) -> ReadSpec:
        """The facts of a batch that was planned at `planned`, in unix seconds, and is read by the parts of `work`.

        Args:
            connect: makes a client of the log service.
            pipeline: the batch's.
            planned: in unix seconds.
            work: the ranges of each task.
        """
        source = pipeline.source
        rows, limits = RowSpec.of(pipeline, planned), read_limits(source, work)
        return cls(connect, pipeline.name, rows, limits, source.on_expired == "skip")


@dataclass(frozen=True)
class Read:
    """The rows of a pull or of a piece of a wide one, their logs, and the share of the ranges read by then (0 to 1)."""

    rows: Rows
    logs: pa.Table
    pull: Pull
    done: float


@dataclass(frozen=True)
class Tally:
    """Counts of misfits: values per column, logs (each once), the first few as text, and dropped logs.

    `requests` to the log service include repeated ones. `waited` are the most seconds that a shard's reader waited for
    the limits of the pipeline's file and the service's quotas.
    """

    misfits: dict[str, int]
    unfit: int
    examples: list[str]
    dropped: int = 0
    requests: int = 0
    waited: float = 0.0

    @classmethod
    def total(cls, parts: Sequence[Tally]) -> Tally:
        """The sum of all parts."""
        misfits: Counter[str] = Counter()
        for part in parts:
            misfits.update(part.misfits)
        examples = [example for part in parts for example in part.examples]
        unfit, dropped = sum(part.unfit for part in parts), sum(part.dropped for part in parts)
        requests = sum(part.requests for part in parts)
        waited = max((part.waited for part in parts), default=0.0)
        return cls(dict(misfits), unfit, examples[:EXAMPLES], dropped, requests, waited)


class Reading:
    """One task's reading of its ranges."""

    def __init__(self, spec: ReadSpec, ranges: Sequence[Range]) -> None:
        self._spec, self._ranges = spec, ranges
        self._maker = RowMaker(spec.rows)
        self._masks: Masks | None = None
        self._found = {item: _Found(item) for item in ranges}
        self._requests, self._waited = 0, 0.0
        self._unnamed = UnnamedKeys(spec.rows.columns, with_values=spec.rows.shows and not spec.rows.masks)

    def rows(self) -> Iterator[Read]:
        """The rows of each pull, as pulls come.

        Raises:
            SourceError, DecodeError, ValueMisfit: reading, decoding or converting failed.
        """
        limits = shard_limits(self._spec.limits, self._ranges)
        service = self._spec.connect()
        if self._spec.rows.masks:
            key = service.connection.mask_key
            self._masks = Masks(self._spec.rows.masks, HashKey(service.connection.mask_name, key) if key else None)
            self._maker = RowMaker(self._spec.rows, self._masks)
        before = service.requests
        spec = self._spec
        pacers = {shard: Pacer(limits[shard]) for shard in limits}
        readers = {shard: Reader(service, spec.pipeline, pacer, spec.skips) for shard, pacer in pacers.items()}
        groups, done = sum(map(len, self._ranges)), 0
        for item, answer in together(readers, self._ranges, SHARDS_AT_ONCE):
            for pull, logs in readers[item.shard].decoded(answer, spec.rows.keys):
                done += pull.next - pull.begin
                # Also part of an answer that was asked for again: it may have expired since.
                if pull.lost:
                    self._found[item].lose(pull)
                    continue
                self._unnamed.add(logs)
                self._found[item].add(pull, logs)
                if logs.num_rows:
                    # Without a name here, that would hold the rows while the next pull is decoded.
                    yield Read(self._rows(logs, item), logs, pull, done / groups)
        self._requests = service.requests - before
        self._waited = max((pacer.waited for pacer in pacers.values()), default=0.0)

    def _rows(self, logs: pa.Table, item: Range) -> Rows:
        rows = self._maker.rows(logs, item.shard)
        self._found[item].leave_out(rows.filtered)
        return rows

    def whole(self, read: Read) -> pa.Table:
        """The logs of a pull that did not fit, with all that they have, for the quarantine."""
        assert read.rows.unfit is not None  # noqa: S101
        logs = decode_piece(read.pull, ()).take(pa.array(read.rows.unfit.rows))
        return logs if self._masks is None else self._masks.masked(logs)

    def tally(self) -> Tally:
        """The misfits and requests, once all rows came."""
        maker = self._maker
        counts = dict(maker.misfits), maker.unfit, maker.examples, maker.dropped
        return Tally(*counts, self._requests, self._waited)

    def unnamed(self) -> Unnamed:
        """Keys, and fields of structs' JSON, that no column keeps, once all rows came."""
        return self._unnamed.found()

    def done(self) -> list[RangeDone]:
        """The figures of each range, once all rows came: of its parts where the service dropped log groups of it."""
        return [part for item in self._ranges for part in self._found[item].done()]


class _Found:
    """The figures of a range, added up pull by pull."""

    def __init__(self, item: Range) -> None:
        self._item, self._begin = item, item.begin
        self._parts: list[RangeDone] = []
        self._rows = self._size = self._filtered = 0
        self._times: list[int] = []

    def add(self, pull: Pull, logs: pa.Table) -> None:
        """Counts a pull."""
        self._rows += logs.num_rows
        self._size += pull.raw_size
        if logs.num_rows:
            ends = pc.min_max(logs["__time__"]).as_py()
            times = [*self._times, ends["min"], ends["max"]]
            self._times = [min(times), max(times)]

    def leave_out(self, filtered: int) -> None:
        """Takes logs of the last pull that the pipeline's condition leaves out from the rows."""
        self._rows -= filtered
        self._filtered += filtered

    def lose(self, pull: Pull) -> None:
        """Ends the part that was read before log groups that are lost, and begins the one after them."""
        self._close(pull.begin)
        self._parts.append(RangeDone(pull.shard, pull.begin, pull.next, 0, 0, None, None, lost=True))
        self._begin = pull.next

    def done(self) -> list[RangeDone]:
        """The sums of all parts."""
        self._close(self._item.end)
        return self._parts

    def _close(self, end: int) -> None:
        """Ends the part that is being read."""
        if self._begin < end:
            first, last = self._times or (None, None)
            counts = self._rows, self._size, first, last
            self._parts.append(RangeDone(self._item.shard, self._begin, end, *counts, filtered=self._filtered))
        self._begin, self._rows, self._size, self._filtered, self._times = end, 0, 0, 0, []


def read_limits(source: Source, work: Sequence[Sequence[Range]]) -> dict[int, Limits]:
    """The pace at which each task may read a shard, as if all tasks of the job ran at the same time."""
    whole = Limits(source.read_bytes_per_second, source.reads_per_second, source.total_bytes_per_second)
    readers = Counter(shard for part in work for shard in {item.shard for item in part})
    return {shard: whole.among(count, len(work)) for shard, count in readers.items()}


def shard_limits(limits: Mapping[int, Limits], ranges: Sequence[Range]) -> dict[int, Limits]:
    """The pace of each shard in a task that reads `ranges`: shards read at the same time share the task's total."""
    shards = {item.shard for item in ranges}
    return {shard: limits[shard].among(1, min(len(shards), SHARDS_AT_ONCE)) for shard in shards}
