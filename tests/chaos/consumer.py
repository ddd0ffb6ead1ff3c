"""A consumer of a table: `python -m tests.chaos.consumer SETUP`. Each line that it reads is the bell.

It takes what it has not confirmed, reads the rows of these commits, keeps them in a sink of its own, and confirms.
One that `dies` kills itself in between at random.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sqlite3
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_provider_slshudi.downstream.changes import Changes, take
from airflow_provider_slshudi.exceptions import ConsumerFenced, ConsumerUnderWay, LedgerUnavailable
from airflow_provider_slshudi.ledger.engine import open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.system.processes import end_with_parent
from airflow_provider_slshudi.transaction.context import Run
from tests.exact import counts

SCHEDULE_SECONDS = 30.0
"""How long a consumer that hears no bell waits until it looks all the same."""
MOST = 5
FAILED = ".failed"
"""The ending of the file that says what a run saw that must not be."""
_DEATH = 0.12

Moment = Callable[[], object]


class Sink:
    """A table of the consumer's own, in a file of SQLite; what was given again is kept once, by its key."""

    def __init__(self, file: Path) -> None:
        self._database = sqlite3.connect(file, timeout=60, isolation_level=None)
        self._database.execute("CREATE TABLE IF NOT EXISTS rows (log TEXT NOT NULL)")
        self._database.execute("CREATE TABLE IF NOT EXISTS done (key TEXT PRIMARY KEY)")

    def keep(self, key: str, logs: Iterable[str], half: Moment = lambda: None) -> bool:
        """Keeps what was given under a key, in one transaction; gives whether it was new.

        Args:
            key: `Changes.key`.
            logs: the key of each row.
            half: called before the transaction's end.
        """
        run = self._database.execute
        run("BEGIN IMMEDIATE")
        with self._database:  # commits, or rolls back
            is_new = run("SELECT 1 FROM done WHERE key = ?", (key,)).fetchone() is None
            if is_new:
                self._database.executemany("INSERT INTO rows VALUES (?)", ((log,) for log in logs))
                run("INSERT INTO done VALUES (?)", (key,))
            half()
        return is_new

    def logs(self) -> list[str]:
        """The key of each row."""
        return [log for (log,) in self._database.execute("SELECT log FROM rows")]


@dataclass
class Consumer:
    """One run of a consumer.

    Args:
        ledger: the pipeline's.
        pipeline: its name.
        table: its table.
        name: the consumer's.
        run: of the process.
        over: a folder with a file of the name of each run that is over, as Airflow would tell.
        sink: keeps the rows.
        rng: draws deaths.
        dies: whether it does.
    """

    ledger: Ledger
    pipeline: str
    table: Storage
    name: str
    run: str
    over: Path
    sink: Sink
    rng: random.Random
    dies: bool

    def work_off(self) -> None:
        """Takes and confirms until there is nothing more, or another run has it."""
        while True:
            try:
                changes = take(self.ledger, self.pipeline, self.name, Run(self.name, self.run), self._ended, MOST)
            except (ConsumerUnderWay, LedgerUnavailable):
                return
            if changes is None:
                return
            self._moment()
            logs = self._read(changes)
            self._moment()
            self.sink.keep(changes.key, logs, self._moment)
            self._moment()
            try:
                self.ledger.confirm(self.pipeline, self.name, changes.last, changes.nonce)
            except (ConsumerFenced, LedgerUnavailable) as error:
                print(f"{self.name} {self.run}: {type(error).__name__}", flush=True)
                return
            self._moment()

    def _ended(self, run: Run) -> bool:
        return (self.over / run.run_id).exists()

    def _read(self, changes: Changes) -> list[str]:
        instants = set(changes.instants)
        rows = counts.rows_of(self.table, "_hoodie_commit_time", "_hoodie_record_key")
        logs = [key for instant, key in rows if instant in instants]
        if len(logs) != changes.rows:
            raise AssertionError(f"{changes.key}: {len(logs)} rows are there, {changes.rows} were told")
        return logs

    def _moment(self) -> None:
        if self.dies and self.rng.random() < _DEATH:
            os.kill(os.getpid(), signal.SIGKILL)


def main(setup: dict[str, Any]) -> None:
    """Looks when the bell rings, or when it has not rung for long; ends when nobody can ring it any more."""
    consumer = Consumer(
        Ledger(open_engine(setup["ledger"])),
        setup["pipeline"],
        Storage(setup["table"]),
        setup["name"],
        setup["run"],
        Path(setup["over"]),
        Sink(Path(setup["sink"])),
        random.Random(setup["seed"]),
        setup["dies"],
    )
    while True:
        try:
            consumer.work_off()
        except AssertionError:
            (consumer.over / f"{consumer.run}{FAILED}").write_text(traceback.format_exc())
            raise
        if select.select([sys.stdin], [], [], SCHEDULE_SECONDS)[0] and not os.read(sys.stdin.fileno(), 4096):
            return


if __name__ == "__main__":
    # Not by Popen's `preexec_fn`: py4j in a forked child shuts down the connections of its parent's other threads.
    end_with_parent()
    main(json.loads(sys.argv[1]))
