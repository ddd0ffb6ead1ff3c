"""Cases whose victim is the scheduler: a real Airflow, one run per case, its scheduler killed and started again."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import psutil
import yaml

from tests.airflows import SupervisedAirflow
from tests.chaos.place import started
from tests.crash import mirrored
from tests.crash.cases import Case, Step
from tests.crash.held import Holds, NotAsPlanned, is_over, kill
from tests.crash.world import Line, World
from tests.exact.outcome import Outcome
from tests.machine import connection
from tests.points import armed_in
from tests.readers.mirrors import CATALOG

HOLD_SECONDS = 8.0
RUN_SECONDS = 240.0
# A dead scheduler is known to be dead within seconds, and its tasks are started again while they may still run. Jobs of
# which no driver is held go to a resident process, as a user's small batches do.
_HASTY = {
    "SLSHUDI_RESIDENT_SECONDS": "60",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "5",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "2",
}
_DAG = "from airflow_provider_slshudi import tail_dag\n\ndag = tail_dag({name!r}, schedule=None)\n"


class Place:
    """An Airflow over one pipeline, whose tasks wait at armed points; use it in a `with`.

    After a case that failed the next one gets a new Airflow and a new pipeline.
    """

    def __init__(self, folder: Path, world: World) -> None:
        self._world, self._folder, self._number = world, folder, 0
        self._here: tuple[SupervisedAirflow, Line, Holds] | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Place:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._here = None
        self._stack.close()

    def run_case(self, case: Case, outcome: Outcome) -> None:
        """Carries a case out; notes how the run ended and what had become of the held process.

        Raises:
            NotAsPlanned, AirflowRefused: the point was not reached, or Airflow does not get over it.
            AssertionError: the case did not end with exact counts and a healthy batch.
        """
        try:
            self._run_case(case, outcome, *(self._here or self._open()))
        except Exception:
            self.__exit__(None, None, None)
            raise

    def _run_case(self, case: Case, outcome: Outcome, airflow: SupervisedAirflow, line: Line, holds: Holds) -> None:
        dag = f"{line.work.pipeline.name}_tail"
        line.put()
        if case.step is Step.SETTLE:
            # Left behind by a run that Airflow knows to be over.
            over, ledger = airflow.runs(dag)[-1]["dag_run_id"], line.work.ledger
            newest = ledger.latest_committed(line.work.pipeline.name)
            assert newest is not None
            step = Step.COMMIT if case.point.value.startswith("commit") else Step.RECORD
            line.before(step, over, dag, ledger.airflow_of(newest.id))
            line.put()
        holds.arm(case.point)
        run = airflow.trigger(dag)
        try:
            held = psutil.Process(holds.wait(case.point, seconds=RUN_SECONDS))
            kill(psutil.Process(airflow.pids["scheduler"]))
            assert (revived := airflow.revive()) == ["scheduler"], revived
            time.sleep(HOLD_SECONDS)
            alive = not is_over(held)
        finally:
            holds.release(case.point)
            airflow.end_idle_orphans()
        ended = airflow.wait_for_run(dag, run, RUN_SECONDS)
        said = self._told(airflow, dag, run, case)
        line.put(10)
        self._healthy(airflow, dag)
        held_process = f"held process {'alive' if alive else 'gone'} at its release"
        outcome.notes.append(f"run {ended}, {held_process}, {said}")
        outcome.add(line.count())

    def _told(self, airflow: SupervisedAirflow, dag: str, run: str, case: Case) -> str:
        """How often the step was started, and how it ended."""
        task = f"batch.{case.step.value}"
        found = airflow.get(f"dags/{dag}/dagRuns/{run}/taskInstances/{task}")
        return f"{task} {found['state']} in try {found['try_number']}"

    def _healthy(self, airflow: SupervisedAirflow, dag: str) -> str:
        run = airflow.trigger(dag)
        ended = airflow.wait_for_run(dag, run, RUN_SECONDS)
        if ended != "success":
            logs = airflow.task_log(dag, run, "batch.settle")[-600:]
            raise NotAsPlanned(f"a healthy run ended {ended}: {airflow.tasks(dag, run)} {logs}")
        return run

    def _open(self) -> tuple[SupervisedAirflow, Line, Holds]:
        self._number += 1
        folder = self._folder / str(self._number)
        dags, pipelines, holds = folder / "dags", folder / "pipelines", Holds(folder / "points")
        dags.mkdir()
        pipelines.mkdir()
        line = self._stack.enter_context(self._world.line(f"scheduler-{self._number}"))
        pipeline, catalog = line.work.pipeline, mirrored.catalog_in(line.folder)["uri"]
        (pipelines / f"{pipeline.name}.yaml").write_text(yaml.safe_dump(pipeline.model_dump(mode="json")))
        (dags / "tail.py").write_text(_DAG.format(name=pipeline.name))
        extra = {"type": "sql", "name": CATALOG}
        variables = {
            **_HASTY,
            **armed_in(holds.folder),
            f"AIRFLOW_CONN_{CATALOG.upper()}": connection("slshudi_iceberg", host=catalog, extra=extra),
        }
        dag, ledger = f"{pipeline.name}_tail", line.folder / "ledger.db"
        place = started(folder, [], self._world.server, ledger, SupervisedAirflow, variables, [dag])
        airflow = self._stack.enter_context(place).airflow
        airflow.pause(dag, False)
        self._here = airflow, line, holds
        # The first run is needed by settle's cases, and shows that the place works.
        self._healthy(airflow, dag)
        return self._here
