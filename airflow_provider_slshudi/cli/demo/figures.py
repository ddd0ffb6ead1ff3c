"""Figures of the demo: decoding's speed, the proof, tables of batches."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.hudi.schema import RECORD_KEY
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Event, State, Transaction
from airflow_provider_slshudi.rows.maker import RowSpec
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.sls.decode import decode
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.system.native import native
from airflow_provider_slshudi.transaction.context import Work

_SECONDS = 1.0


@dataclass(frozen=True)
class Decoding:
    """MB of raw protobuf that one core turns into Arrow in a second, and whether slshudi-native did."""

    mb_s: float
    by_native: bool


def measure(service: LogService, pipeline: Pipeline) -> Decoding:
    """Decodes the first pull of the fullest shard again and again, for a second of CPU."""
    windows = [(shard.id, service.begin(shard.id), service.end(shard.id)) for shard in service.shards()]
    shard, begin, end = max(windows, key=lambda window: window[2] - window[1])
    pull = service.pull(shard, begin, end)
    keys = RowSpec.of(pipeline).keys
    times, start = 0, time.thread_time()
    while (seconds := time.thread_time() - start) < _SECONDS:
        decode(pull.body, shard, pull.begin, keys, pull.groups)
        times += 1
    return Decoding(times * len(pull.body) / 1e6 / seconds, native is not None)


@dataclass(frozen=True)
class Proof:
    """Logs that the service acknowledged, rows by Spark and by hudi-rs, distinct row keys, and `verify`'s verdict."""

    put: int
    by_spark: int
    by_hudi_rs: int
    distinct_keys: int
    verified: bool

    @property
    def holds(self) -> bool:
        """Whether all counts are equal."""
        return self.verified and len({self.put, self.by_spark, self.by_hudi_rs, self.distinct_keys}) == 1


def prove(work: Work, put: int) -> Proof:
    """Counts the table."""
    verification = verify(work)
    distinct = verification.rows - verification.totals.doubled
    return Proof(put, verification.rows, _rows_by_hudi_rs(work.storage.uri), distinct, verification.ok)


def _rows_by_hudi_rs(uri: str) -> int:
    """The rows of the newest snapshot's files, as the Rust reader finds and reads them."""
    from hudi import HudiReadOptions, HudiTableBuilder

    table = HudiTableBuilder.from_base_uri(uri).build()
    options = HudiReadOptions(projection=[RECORD_KEY])
    return sum(batch.num_rows for batch in table.read_stream(options))


_PROGRESS_SECONDS = 5.0
_IDLE_SECONDS = 20.0


class Show:
    """Prints lines that begin with the seconds since the start, and tables at the end."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._started = self._last_progress = time.monotonic()
        self._progress = (0, 0)

    def say(self, text: str, style: str = "") -> None:
        """Prints one line."""
        self._console.print(f"{time.monotonic() - self._started:6.1f} s  {text}", style=style, markup=False)

    def error(self, text: str) -> None:
        """Prints why the demo ends."""
        self.say(text, "bold red")

    def progress(self, put: int, of: int, committed: int) -> None:
        """Prints the progress: every few seconds, more rarely while nothing changes."""
        pause = _PROGRESS_SECONDS if (put, committed) != self._progress else _IDLE_SECONDS
        if time.monotonic() - self._last_progress < pause:
            return
        self._last_progress, self._progress = time.monotonic(), (put, committed)
        self.say(f"{put:>9,} of {of:,} logs put, {committed:>9,} rows committed", "dim")

    def change(self, transaction: Transaction, recovered: bool) -> None:
        """Prints a batch's new state."""
        rows = f", {transaction.rows:,} rows" if transaction.rows else ""
        after = " by the recovery" if recovered else ""
        style = "green" if transaction.state is State.COMMITTED else ""
        batch, instant = transaction.id[-6:], transaction.instant or "-"
        self.say(f"batch {batch}: {transaction.state.value}{after} (instant {instant}{rows})", style)

    def killed(self, pid: int, transaction: Transaction, phase: str) -> None:
        """Prints that a driver was killed."""
        self.say(
            f"killed (SIGKILL) the Spark driver {pid} that was about to commit instant {transaction.instant}: ledger "
            f"{transaction.state.value}, timeline {phase}, {transaction.rows:,} rows written and not visible",
            "bold yellow",
        )

    def decisions(self, events: list[Event]) -> None:
        """Prints the decisions about a transaction, with their evidence."""
        for event in events:
            if event.what == "decision":
                detail = json.loads(event.detail)
                self.say(
                    f"  decided by {detail['by']}: ledger {detail['ledger']}, timeline {detail['timeline']} -> "
                    f"{detail['decision']} ({detail['why']})",
                    "yellow",
                )

    def batches(self, ledger: Ledger, pipeline: str) -> None:
        """Prints a table with a row per committed batch; its seconds count from plan to commit."""
        table = Table(title="Committed batches")
        for name in ("batch", "instant", "shards", "rows", "raw MB", "MB/s", "seconds"):
            table.add_column(name, justify="left" if name in ("batch", "instant") else "right")
        for item in reversed(ledger.last(pipeline, 100, State.COMMITTED)):
            seconds = (item.changed - item.created).total_seconds()
            shards = len({span.shard for span in ledger.ranges(item.id)})
            size = item.bytes / 1e6
            table.add_row(
                item.id[-6:],
                item.instant,
                str(shards),
                f"{item.rows:,}",
                f"{size:,.0f}",
                f"{size / seconds:,.1f}",
                f"{seconds:,.1f}",
            )
        self._console.print(table)

    def proof(self, proof: Proof) -> None:
        """Prints the counts, side by side."""
        table = Table(title="Proof", show_header=False)
        table.add_column()
        table.add_column(justify="right")
        table.add_row("logs that the service acknowledged", f"{proof.put:,}")
        table.add_row("rows in the table, by Spark", f"{proof.by_spark:,}")
        table.add_row("rows in the table, by hudi-rs", f"{proof.by_hudi_rs:,}")
        table.add_row("distinct row keys", f"{proof.distinct_keys:,}")
        table.add_row("rows against the ledger's coverage", "agree" if proof.verified else "DISAGREE")
        self._console.print(table)
        if proof.holds:
            self.say("every log is in the table exactly once", "bold green")
        else:
            self.error("the counts differ: this should never happen")

    def decoding(self, found: Decoding) -> None:
        """Prints how fast this machine decodes, and what would make it faster."""
        by = "slshudi-native" if found.by_native else "ptars"
        self.say(f"decoding: {found.mb_s:,.0f} MB of raw logs a second and core, by {by}")
        if not found.by_native:
            self.say(
                "          slshudi-native decodes several times as much: `make demo` builds it where it finds `cargo` "
                "(Rust 1.85 or later)",
                "yellow",
            )

    def addresses(self, airflow: str, table: str, directory: Path) -> None:
        """Prints where to look next."""
        self.say(f"Airflow: {airflow}/dags/ad_events_tail")
        self.say(f"table:   {table}")
        self.say(f"ledger:  sqlite:///{directory / 'ledger.db'} (state of {datetime.now():%H:%M:%S})")
