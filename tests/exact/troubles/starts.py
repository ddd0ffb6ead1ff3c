"""A worker dies as its task begins or ends."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import psutil
from aliyun.log import LogItem, PutLogsRequest

from airflow_provider_slshudi.ledger.records import LIVE, Transaction
from airflow_provider_slshudi.ledger.transactions import TAKEN_OVER
from airflow_provider_slshudi.system.processes import adopt_orphans
from tests.chaos.place import PROJECT, Line, Place
from tests.chaos.proof import prove
from tests.exact.outcome import Outcome, attempt
from tests.exact.trouble import Trouble, silence
from tests.local.sdk import by_ip
from tests.starts.cases import STEPS, Case, Found, Moment, Since, Victim, drawn
from tests.starts.place import DECIDES, place
from tests.starts.workers import Workers, kill, task_of

CASES = 120


def table(found: list[Found]) -> str:
    """Each step, victim and moment: how many kills, within which milliseconds, and the seconds until decisions."""
    rows = defaultdict(list)
    for item in found:
        case = item.case
        rows[case.step, case.victim.value, item.moment.value, case.since.value].append(item)
    lines = ["step    victim  moment    kills  ms after              seconds until decided"]
    for key in sorted(rows, key=lambda key: (STEPS.index(key[0]), *key[1:])):
        items, (step, victim, moment, since) = rows[key], key
        after = [item.case.after for item in items]
        seconds = sorted(item.seconds for item in items if item.seconds is not None)
        never = sum(item.is_left_open for item in items)
        told = f"{seconds[0]:.0f} to {seconds[-1]:.0f}" if seconds else ""
        told += f" never: {never}" if never else ""
        span = f"{since} {min(after)} to {max(after)}"
        lines.append(f"{step:<8}{victim:<8}{moment:<10}{len(items):>5}  {span:<22}{told}".rstrip())
    for shown in Moment:
        decided = [item for item in found if item.moment is shown and item.seconds is not None]
        if decided:
            worst = max(decided, key=lambda item: item.seconds or 0)
            lines.append(f"worst of {shown.value!r}: {worst.seconds:.0f} s ({worst.case})")
    return "\n".join(lines)


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

    def carry_out(self, cases: Sequence[Case]) -> Iterator[Outcome]:
        """Does all cases, each on a pipeline that is free, between two healthy runs of all pipelines."""
        self.place.airflow.pause(DECIDES, False)
        free: SimpleQueue[Line] = SimpleQueue()
        scheduler, lines = self.place.airflow.pids["scheduler"], self.place.lines

        def carry_out(case: Case) -> tuple[Line, Found]:
            line = free.get()
            try:
                return line, self._case(line, case, workers)
            finally:
                free.put(line)

        with Workers(scheduler) as workers, ThreadPoolExecutor(len(lines)) as pool:
            for line in pool.map(self._healthy, lines):
                free.put(line)
            for done in as_completed([pool.submit(carry_out, case) for case in cases]):
                line, found = done.result()
                self.found.append(found)
                outcome = Outcome(LOGS, case=str(found.case), notes=[line.name, found.told], seconds=found.seconds or 0)
                outcome.figures.update(kills=1)
                if found.is_left_open:
                    outcome.figures["left open"] += 1
                    outcome.wrong.append("the batch was left undecided")
                yield outcome
            deque(pool.map(self._healthy, lines), maxlen=0)

    def count(self) -> Iterator[Outcome]:
        """Compares logs and rows of each pipeline."""
        for line in self.place.lines:
            yield attempt(f"rows of {line.name}", partial(self._count, line))

    def _count(self, line: Line, outcome: Outcome) -> None:
        outcome.add(prove(self.place, line, self.acknowledged[line.name]))

    def _healthy(self, line: Line) -> Line:
        self._put(line)
        airflow, dag = self.place.airflow, line.dags[0]
        run = airflow.trigger(dag)
        ended = airflow.wait_for_run(dag, run, TAKEN_SECONDS)
        assert ended == "success", f"{line.name}: a run without a kill ended {ended}: {airflow.tasks(dag, run)}"
        return line

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


class Starts(Trouble[Case]):
    """What is left where a worker dies as its task begins or ends.

    Under a real Airflow with LocalExecutor, as it comes, the task of a step is killed, its worker or both, so many
    milliseconds after the worker took it, or after its step was over; it measures how long the batch stays undecided.
    In the end the service's logs are compared with the tables' rows.
    """

    keeps = True

    def add_options(self, parser: ArgumentParser) -> None:
        parser.add_argument("--every", type=int, default=50, metavar="MS", help="between two kills (%(default)s)")
        parser.add_argument(
            "--until", type=int, default=3000, metavar="MS", help="after a task was taken (%(default)s)"
        )
        parser.add_argument("--ends", type=int, default=300, metavar="MS", help="after a step was over (%(default)s)")
        parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS)
        victims = [victim.value for victim in Victim]
        parser.add_argument("--victims", nargs="+", choices=victims, default=["both", "worker"])
        parser.add_argument("--pipelines", type=int, default=8, help="cases at a time (default: %(default)s)")
        parser.add_argument("--longest", type=float, default=240, metavar="SECONDS", help="then it is left undecided")

    def cases(self, options: Namespace) -> Sequence[Case]:
        victims, most = [Victim(name) for name in options.victims], options.cases or CASES
        return drawn(options.steps, victims, options.every, options.until, options.ends, most, options.seed)

    def run(self, cases: Sequence[Case], options: Namespace, folder: Path) -> Iterator[Outcome]:
        silence()
        adopt_orphans()
        with place(folder, min(options.pipelines, len(cases))) as made:
            runs = Runs(made, options.longest)
            yield from runs.carry_out(cases)
            yield from runs.count()
        print(table(runs.found), flush=True)
