"""Watches the batches, kills one driver between its write and its commit, and waits until all is committed."""

from __future__ import annotations

import time

import psutil

from airflow_provider_slshudi.cli.demo.airflow_process import LocalAirflow
from airflow_provider_slshudi.cli.demo.figures import Show
from airflow_provider_slshudi.cli.demo.putter import Putter
from airflow_provider_slshudi.exceptions import SlsHudiError
from airflow_provider_slshudi.handover.job_order import Verb
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger.records import State, Transaction
from airflow_provider_slshudi.transaction.context import Work

_PATIENCE_SECONDS = 420.0


class Watch:
    """Watches the demo's ledger, and kills one driver."""

    def __init__(self, work: Work, airflow: LocalAirflow, putter: Putter, show: Show) -> None:
        self._work, self._airflow, self._putter, self._show = work, airflow, putter, show
        self._states: dict[str, State] = {}
        self._killed: str | None = None

    @property
    def _dag_id(self) -> str:
        return f"{self._work.pipeline.name}_tail"

    def until_all_is_committed(self) -> None:
        """Lets the DAG run on its schedule until every log is committed, one batch per part of the logs.

        Raises:
            SlsHudiError: this takes too long.
        """
        self._airflow.pause(self._dag_id, False)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not self._over():
            if time.monotonic() > deadline:
                raise SlsHudiError(
                    f"not all is committed after {_PATIENCE_SECONDS:.0f} s; see the task logs in Airflow"
                )
            time.sleep(0.1)
        self._airflow.pause(self._dag_id, True)

    def _over(self) -> bool:
        transactions = self._work.ledger.last(self._work.pipeline.name, 100)
        for transaction in reversed(transactions):
            self._tell(transaction)
        # A batch reads the logs that came before its plan, so a part that is put meanwhile is left for the next batch.
        self._putter.allow(1 + len([item for item in transactions if item.state is not State.ABORTED]))
        committed = [item for item in transactions if item.state is State.COMMITTED]
        if self._killed is None and committed:
            self._kill_a_committing_driver(transactions)
        rows = sum(item.rows for item in committed)
        self._show.progress(self._putter.acknowledged, self._putter.count, rows)
        return (
            self._putter.done
            and rows >= self._putter.count
            and self._killed is not None
            and not self._work.ledger.live(self._work.pipeline.name)
        )

    def _tell(self, transaction: Transaction) -> None:
        if self._states.get(transaction.id) is transaction.state:
            return
        self._states[transaction.id] = transaction.state
        recovered = transaction.id == self._killed and transaction.state is State.COMMITTED
        self._show.change(transaction, recovered)
        if recovered:
            self._show.decisions(self._work.ledger.events(transaction.id))

    def _kill_a_committing_driver(self, transactions: list[Transaction]) -> None:
        """Sends SIGKILL to the JVM of a commit whose data is written and recorded."""
        prepared = {item.instant: item for item in transactions if item.state is State.PREPARED}
        if not prepared:
            return
        # What it remembers of an earlier look may be another process of the same number.
        psutil.process_iter.cache_clear()
        for process in psutil.process_iter(["cmdline"]):
            command = process.info["cmdline"] or []
            name = next((word for word in command if word.startswith(f"slshudi {Verb.COMMIT.value} ")), None)
            if name is None or "java" not in command[0]:
                continue
            transaction = prepared.get(name.rpartition(" ")[2])
            if transaction is None:
                continue
            process.kill()
            self._killed = transaction.id
            phase = Timeline.load(self._work.storage).get(transaction.instant or "")
            self._show.killed(process.pid, transaction, phase.phase.value if phase else "gone")
            return
