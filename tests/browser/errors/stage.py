"""One pipeline of the world: its logs, its file, its runs, and what its page shows."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from aliyun.log import LogItem, PutLogsRequest
from playwright.sync_api import Locator

from airflow_provider_slshudi.cli.demo.airflow_process import AirflowRefused, AirflowUnreachable
from airflow_provider_slshudi.config.load import load_pipeline
from airflow_provider_slshudi.handover.names import OPERATIONS, OVERRIDE, Act
from airflow_provider_slshudi.ledger.records import Transaction
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.transaction.context import Run, Work
from airflow_provider_slshudi.views.advice import advice
from tests.browser.errors.window import Window
from tests.browser.errors.world import NEVER, PROJECT, World
from tests.machine import event, write_pipeline
from tests.points import FOLDER
from tests.scenarios import Scenario, SessionLauncher
from tests.waiting import until

RUN_SECONDS = 900.0
SPARK = {"connection": "spark_default", "conf": {"spark.sql.shuffle.partitions": "2"}}
_DAGS = '''"""The DAGs of a pipeline, on a machine whose variables a file names."""

import json
import os
from pathlib import Path

variables = Path({variables!r})
if variables.exists():
    os.environ.update(json.loads(variables.read_text()))

from airflow_provider_slshudi.dag.factories import tail_dag  # noqa: E402
from airflow_provider_slshudi.dag.operations import operations_dag, override_dag  # noqa: E402

tail = tail_dag({name!r}, schedule=None, is_paused_upon_creation=False)
operations = operations_dag({name!r}, schedule=None, is_paused_upon_creation=False)
override = override_dag({name!r})
'''


@dataclass
class Stage:
    """A pipeline on which a scenario is played.

    Attributes:
        wanted: how often each event has to be in the table in the end.
    """

    world: World
    window: Window
    name: str
    wanted: Counter[str] = field(default_factory=Counter)
    _put: int = 0

    @property
    def tail(self) -> str:
        """The tail's DAG."""
        return f"{self.name}_tail"

    @property
    def operations(self) -> str:
        """The DAG of what people ask for that loses nothing."""
        return f"{self.name}_{OPERATIONS}"

    @property
    def file(self) -> Path:
        """The pipeline's file."""
        return self.world.home / "pipelines" / f"{self.name}.yaml"

    @property
    def table(self) -> Path:
        """The table's folder."""
        return self.world.home / "lake" / self.name

    @property
    def logstore(self) -> str:
        """The logstore."""
        return self.name.replace("_", "-")

    @property
    def points(self) -> Path:
        """Where points of the protocol are armed, see `machine`."""
        return self.world.home / "points" / self.name

    # What the scenario sets up.

    def make(self, **fields: Any) -> None:
        """Makes logstore, file and DAGs; `fields` change those of the pipeline's file."""
        self.points.mkdir()
        self.world.client.create_logstore(PROJECT, self.logstore, ttl=NEVER, shard_count=1)
        source = {"connection": "sls_default", "project": PROJECT, "logstore": self.logstore, "start": "begin"}
        write_pipeline(self.file, self.table, **{"name": self.name, "spark": SPARK, "source": source})
        self.edit(**fields)
        text = _DAGS.format(variables=str(self._variables), name=self.name)
        (self.world.home / "dags" / f"{self.name}.py").write_text(text, encoding="utf-8")

    def known(self) -> None:
        """Waits until Airflow knows the DAGs."""
        until(
            f"Airflow knows the DAGs of {self.name}",
            lambda: all(map(self._is_known, ("tail", OPERATIONS, OVERRIDE))),
        )

    def _is_known(self, role: str) -> bool:
        try:
            return not self.world.airflow.get(f"dags/{self.name}_{role}")["is_paused"]
        except AirflowRefused:
            time.sleep(0.5)
            return False

    def edit(self, **fields: Any) -> None:
        """Changes fields of the pipeline's file; within a mapping only those that are named, None takes one out."""
        described = yaml.safe_load(self.file.read_text(encoding="utf-8"))
        _change(described, fields)
        self.file.write_text(yaml.safe_dump(described, sort_keys=False), encoding="utf-8")

    def machine(self, **variables: str) -> None:
        """The variables of the machine where the pipeline's tasks run, from the next task on."""
        self._variables.write_text(json.dumps(variables), encoding="utf-8")

    @property
    def _variables(self) -> Path:
        return self.world.home / f"{self.name}.json"

    def put(
        self, count: int, lost: bool = False, size: int = 10, changes: Mapping[str, str | None] | None = None
    ) -> None:
        """Puts logs, `size` to a log group; `changes` replace values of their keys, None leaves a key out.

        Logs that are `lost` are not wanted in the table.
        """
        for first in range(self._put, self._put + count, size):
            numbers = range(first, min(first + size, self._put + count))
            items = [LogItem(int(time.time()), contents=_log(number, changes or {})) for number in numbers]
            self.world.client.put_logs(PutLogsRequest(PROJECT, self.logstore, "ads", "10.0.0.1", items))
            if not lost:
                self.wanted.update(f"event-{number}" for number in numbers)
        self._put += count

    @contextmanager
    def built(self, run_id: str = "before") -> Iterator[Scenario]:
        """The same pipeline for the Spark session of this process, which one scenario uses at a time."""
        world = self.world
        with world.building:
            yield Scenario(
                Work(
                    load_pipeline(self.file),
                    world.ledger,
                    SessionLauncher(world.spark),
                    lambda: LogService(world.server.connection(), PROJECT, self.logstore),
                    Run(self.tail, run_id),
                ),
                world.client,
            )

    def before(self, count: int = 100, **changes: str | None) -> Transaction:
        """A healthy batch, as runs of an earlier day left it."""
        self.put(count, changes=changes)
        with self.built() as pipeline:
            return pipeline.batch(f"before-{self._put}")

    # Runs.

    def begin(self) -> str:
        """Starts a run of the tail, as its schedule does; a pipeline that never ran has no page yet."""
        return self.world.airflow.trigger(self.tail)

    def ended(self, run: str, dag: str = "") -> str:
        """Waits for a run's end; returns its state."""
        path = f"dags/{dag or self.tail}/dagRuns/{run}"

        def state() -> str:
            time.sleep(0.5)
            with suppress(AirflowUnreachable):  # a busy API server
                found = str(self.world.airflow.get(path)["state"])
                return found if found in ("success", "failed") else ""
            return ""

        return until(f"{run} of {self.name} has ended", state, RUN_SECONDS, self.explain)

    def fails(self, run: str) -> None:
        """Waits until a run has failed."""
        assert self.ended(run) == "failed", self.explain()

    def succeeds(self, run: str) -> None:
        """Waits until a run has succeeded."""
        assert self.ended(run) == "success", self.explain()

    def explain(self) -> str:
        """What the ledger has of it, and the last run's tasks."""
        runs = self.world.airflow.runs(self.tail)[-2:]
        tasks = {run["dag_run_id"]: self.world.airflow.tasks(self.tail, run["dag_run_id"]) for run in runs}
        ledger = self.world.ledger
        return (
            f"{ledger.last(self.name, 3)}; {ledger.troubles(self.name)}; {ledger.audit_entries(self.name, 2)}; {tasks}"
        )

    # The protocol's points, on a machine of its own.

    def stops_at(self, point: Point, how: str = "hold") -> None:
        """Makes the next process that comes to a point wait there, or die."""
        self.machine(**{FOLDER: str(self.points)})
        (self.points / point.value).write_text(how, encoding="utf-8")

    def run_held_at(self, point: Point) -> str:
        """After a healthy batch and new logs, the id of a run that stands at the point."""
        self.before()
        self.put(50)
        self.stops_at(point)
        run = self.run_now()
        until(f"a process stands at {point.value}", lambda: any(self.points.glob(f"{point.value}.*")), RUN_SECONDS)
        return run

    def release(self) -> None:
        """Lets it go on."""
        for file in self.points.iterdir():
            with suppress(FileNotFoundError):
                file.unlink()

    # The page.

    def sees(self, error: str, says: str = "") -> Locator:
        """Waits until the page shows the error with what to do about it, and `says` in its message."""

        def shown() -> Locator | None:
            self.window.pipeline(self.name)
            found = self.window.failure(error)
            if found is None:
                time.sleep(1)
            return found

        found = until(f"the page of {self.name} shows {error}", shown, RUN_SECONDS, self.explain)
        assert found is not None
        assert f"What to do: {advice(error).text}" in found.inner_text(), found.inner_text()
        assert says in found.locator("p.message").inner_text(), found.inner_text()
        return found

    def run_now(self, within: Locator | None = None) -> str:
        """Presses "run now"; returns the run's id."""
        if within is None:
            self.window.pipeline(self.name)
        return self.window.press("run now", within)

    def act(self, act: Act, within: Locator | None = None, works: bool = True) -> str:
        """Has an act done, by its link in `within` or on the page; returns the result that the page shows then."""
        run = self.window.act(act, f"the page of {self.name} says so", within)
        state = self.ended(run, f"{self.name}_{OVERRIDE}" if act.may_lose else self.operations)
        assert state == ("success" if works else "failed"), self.explain()
        page = self.window.pipeline(self.name)
        newest = page.locator("h2:has-text('Manual actions') ~ table tbody tr").first
        assert newest.locator("th").get_attribute("data-act") == act.value, newest.inner_text()
        return newest.locator("td").nth(3).inner_text()

    def pause(self) -> None:
        """Presses "pause"."""
        self.window.pipeline(self.name)
        self.window.switch("pause")

    def unpause(self) -> None:
        """Presses "unpause"."""
        self.window.pipeline(self.name)
        self.window.switch("resume")

    def is_well(self) -> None:
        """Waits until the page says that all is well."""

        def well() -> bool:
            self.window.pipeline(self.name)
            if self.window.need == "OK" and not self.window.failures():
                return True
            time.sleep(1)
            return False

        until(f"the page of {self.name} says that all is well", well, 60, self.explain)

    def goes_on(self, count: int = 20, within: Locator | None = None) -> None:
        """After new logs and "run now" all is well, and every log is in the table once."""
        self.put(count)
        self.succeeds(self.run_now(within))
        self.is_well()

    # The count.

    def count(self) -> int:
        """Compares the events of all rows with those that are wanted; returns how many there are."""
        found = Counter(self.rows)
        differ = {"lacking": self.wanted - found, "too many": found - self.wanted}
        assert found == self.wanted, {what: dict(list(events.items())[:5]) for what, events in differ.items() if events}
        return found.total()

    @property
    def rows(self) -> list[str]:
        """The event of every row of the table."""
        from hudi import HudiTableBuilder

        batches = HudiTableBuilder.from_base_uri(f"file://{self.table}").build().read()
        return [name for batch in batches for name in batch["event_id"].to_pylist()]


def _change(described: dict[str, Any], fields: Mapping[str, Any]) -> None:
    for name, value in fields.items():
        if value is None:
            described.pop(name, None)
        elif isinstance(value, Mapping) and isinstance(described.get(name), dict):
            _change(described[name], value)
        else:
            described[name] = value


def _log(number: int, changes: Mapping[str, str | None]) -> list[tuple[str, str]]:
    changed = {**dict(event(number)), **changes}
    return [(key, value) for key, value in changed.items() if value is not None]
