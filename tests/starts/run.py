"""Carries the cases out, many at a time, and waits until what they left is decided."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue

import psutil
from aliyun.log import LogItem, PutLogsRequest

from airflow_provider_slshudi.ledger.records import LIVE, Transaction
from airflow_provider_slshudi.ledger.transactions import TAKEN_OVER
from tests.chaos.place import PROJECT, Line, Place
from tests.chaos.proof import Outcome, prove
from tests.local.sdk import by_ip
from tests.starts.cases import Case, Found, Moment, Since
from tests.starts.place import DECIDES
from tests.starts.workers import Workers, kill, task_of

LOGS = 5
TAKEN_SECONDS = 600.0
_LOOK_SECONDS = 0.5
_END_LOOK_SECONDS = 0.005


class Runs:
    """The pipelines of a place, each with one case at a time; `acknowledged` counts the logs of each."""

    def __init__(self, place: Place, longest: float) -> None:
        self.place, self.longest = place, longest
        self.acknowledged = dict.fromkeys((line.name for line in place.lines), 0)
        self.found: list[Found] = []

    def carry_out(self, cases: Iterable[Case]) -> Outcome:
        """Does all cases; then compares logs and rows."""
        left: SimpleQueue[Case] = SimpleQueue()
        for case in cases:
            left.put(case)
        self.place.airflow.pause(DECIDES, False)
        scheduler, lines = self.place.airflow.pids["scheduler"], self.place.lines
        with Workers(scheduler) as workers, ThreadPoolExecutor(len(lines)) as pool:
            for done in [pool.submit(self._line, line, left, workers) for line in lines]:
                done.result()
        outcome = Outcome()
        for line in self.place.lines:
            outcome.add(prove(self.place, line, self.acknowledged[line.name]))
        return outcome

    def _line(self, line: Line, left: SimpleQueue[Case], workers: Workers) -> None:
        self._healthy(line)
        while True:
            try:
                case = left.get_nowait()
            except Empty:
                break
            found = self._case(line, case, workers)
            self.found.append(found)
            print(f"{line.name} {found}", flush=True)
        self._healthy(line)

    def _healthy(self, line: Line) -> None:
        self._put(line)
        airflow, dag = self.place.airflow, line.dags[0]
        run = airflow.trigger(dag)
        ended = airflow.wait_for_run(dag, run, TAKEN_SECONDS)
        assert ended == "success", f"{line.name}: a run without a kill ended {ended}: {airflow.tasks(dag, run)}"

    def _case(self, line: Line, case: Case, workers: Workers) -> Found:
        self._put(line)
        airflow, dag = self.place.airflow, line.dags[0]
        run = airflow.trigger(dag)
        task = self._task(dag, run, case.step)
        taken = workers.taken(str(task["id"]), TAKEN_SECONDS)
        if taken is None:
            return Found(case, Moment.LATE, None, f"no worker took it: {airflow.tasks(dag, run)}")
        worker, at = taken
        before = self._batch(line, run)
        if case.since is Since.OVER:
            at = self._over(line, run, worker, str(task["id"]), before)
        time.sleep(max(0.0, at + case.after / 1000 - time.monotonic()))
        killed, began = kill(case.victim, worker, str(task["id"])), time.monotonic()
        batch = self._batch(line, run)
        if not killed:
            airflow.wait_for_run(dag, run, TAKEN_SECONDS)
            return Found(case, Moment.LATE, None, "its task was over")
        moment = _moment(str(self._task(dag, run, case.step)["state"]), before, batch)
        seconds = None if batch is None else self._decided(batch, began)
        if batch is None or seconds is not None:
            self._end(dag, run)
        return Found(case, moment, seconds, self._how(batch))

    def _decided(self, batch: Transaction, began: float) -> float | None:
        while (waited := time.monotonic() - began) < self.longest:
            if self.place.ledger.get(batch.id).state not in LIVE:
                return waited
            time.sleep(_LOOK_SECONDS)
        return None

    def _how(self, batch: Transaction | None) -> str:
        if batch is None:
            return "nothing was planned"
        found = self.place.ledger.get(batch.id)
        taken = [event.detail for event in self.place.ledger.events(batch.id) if event.what == TAKEN_OVER]
        return f"{found.state.value} {' '.join(taken)}"

    def _end(self, dag: str, run: str) -> None:
        """A run whose worker is dead ends much later, or never."""
        airflow = self.place.airflow
        if airflow.get(f"dags/{dag}/dagRuns/{run}")["state"] not in ("success", "failed"):
            airflow.patch(f"dags/{dag}/dagRuns/{run}", {"state": "failed"})

    def _over(self, line: Line, run: str, worker: psutil.Process, task: str, before: Transaction | None) -> float:
        """When the ledger was told that the step is over, or its worker took another task."""
        heard = None if before is None else before.heartbeat
        worked = before is None
        while task_of(worker.pid) == task:
            batch = self._batch(line, run)
            if batch is not None:
                worked = worked or (batch.process is not None and batch.heartbeat != heard)
                if worked and batch.process is None:
                    break
            time.sleep(_END_LOOK_SECONDS)
        return time.monotonic()

    def _batch(self, line: Line, run: str) -> Transaction | None:
        last = self.place.ledger.last(line.name, 1)
        return last[0] if last and last[0].run_id == run else None

    def _task(self, dag: str, run: str, step: str) -> dict[str, object]:
        found: dict[str, object] = self.place.airflow.get(f"dags/{dag}/dagRuns/{run}/taskInstances/batch.{step}")
        return found

    def _put(self, line: Line) -> None:
        count = self.acknowledged[line.name]
        items = [LogItem(int(time.time()), contents=line.log(number)) for number in range(count, count + LOGS)]
        client = by_ip(self.place.server.connection())
        client.put_logs(PutLogsRequest(PROJECT, line.name, "ads", "10.0.0.1", items))
        self.acknowledged[line.name] += LOGS


def _moment(state: str, before: Transaction | None, batch: Transaction | None) -> Moment:
    if batch is None:
        return Moment.NO_BATCH
    if state == "queued":
        return Moment.QUEUED
    if state == "success":
        return Moment.LATE
    if batch.process:
        return Moment.WORKS
    return Moment.BEGINS if before is not None and batch.heartbeat == before.heartbeat else Moment.ENDS
