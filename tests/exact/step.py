"""`python -m tests.exact.step SETUP`: steps of one run in a process of their own, as tasks carry them out.

SETUP is JSON: pipeline, ledger, run and steps, for most steps transaction and token, and if they are other than usual
the name of the Airflow, the catalog, the times and the launcher. How the steps went is left in the file `out`, if there
is one. The log service's keys come from the environment.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.ledger.engine import open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.repair.abandon import abandon
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.repair.recover import break_leases, recover
from airflow_provider_slshudi.services import maintenance, metadata
from airflow_provider_slshudi.services.rewrite import cluster, compact
from airflow_provider_slshudi.sls.connection import connections_of
from airflow_provider_slshudi.sls.faults import Patience
from airflow_provider_slshudi.sls.logstores import service_of
from airflow_provider_slshudi.spark.launch import Launcher, SubprocessLauncher
from airflow_provider_slshudi.transaction import context, plan, resolve, settle, steps
from tests.crash.cases import Step

STEPS: dict[Step, Callable[[context.Work, str, int], object]] = {
    Step.SETTLE: lambda working, _, __: settle.settle(working, lambda run: True),
    Step.PLAN: lambda working, _, __: plan.tail(working),
    Step.OPEN: steps.open_instant,
    Step.APPEND: steps.append,
    Step.RECORD: steps.record,
    Step.COMMIT: steps.commit,
    Step.CLEAN: lambda working, _, __: maintenance.clean(working),
    Step.ARCHIVE: lambda working, _, __: maintenance.archive(working),
    Step.CLUSTER: lambda working, _, __: cluster(working),
    Step.COMPACT: lambda working, _, __: compact(working),
    Step.METADATA: lambda working, _, __: metadata.rebuild_metadata(working),
}
TIMED = (context, resolve)
COMMANDS: dict[str, Callable[[context.Work, str], object]] = {
    "recover": lambda working, _: recover(working, lambda run: None),
    "recover the transaction": lambda working, id_: recover(working, lambda run: None, [id_]),
    "recover --break-lease": lambda working, _: (break_leases(working, "a world"), recover(working, lambda run: None)),
    "abandon": lambda working, id_: abandon(working, id_, "a world"),
    "table rebuild-metadata": lambda working, _: metadata.rebuild_metadata(working),
    "ledger rebuild": lambda working, _: rebuild(working),
}
"""What errors ask for, as `slshudi` does it; the transaction is the one that the error names."""


@dataclass(frozen=True)
class Told:
    """How steps went: those that were done, the transaction, and the error that ended them."""

    done: tuple[str, ...] = ()
    transaction: str = ""
    token: int = 0
    error: str = ""
    text: str = ""
    ids: Mapping[str, Any] = field(default_factory=dict)
    cause: Exception | None = None
    """The error itself, where it was one of this process."""

    @property
    def ok(self) -> bool:
        """Whether no error ended them."""
        return not self.error

    def ended_by(self, error: Exception) -> Told:
        """The same, and the error that ended it."""
        ids = {key: value for key, value in vars(error).items() if isinstance(value, (str, int, type(None)))}
        return replace(self, error=type(error).__name__, text=str(error), ids=ids, cause=error)

    def __str__(self) -> str:
        return (
            f"{', '.join(self.done) or 'nothing'} done{f', then {self.error}: {self.text[:300]}' if self.error else ''}"
        )


def carry_out(working: context.Work, wanted: Iterable[str], id_: str = "", token: int = 0) -> Told:
    """Carries steps and commands out, one after the other, until an error ends them."""
    told = Told((), id_, token)
    try:
        for name in wanted:
            if name in COMMANDS:
                COMMANDS[name](working, told.transaction)
            elif name == Step.PLAN.value:
                planned = plan.tail(working)
                if planned is None:
                    break
                told = replace(told, transaction=planned.id, token=planned.token)
            else:
                STEPS[Step(name)](working, told.transaction, told.token)
            told = replace(told, done=(*told.done, name))
    except Exception as error:
        return told.ended_by(error)
    return told


def shorten(times: dict[str, float]) -> None:
    """Sets what a test of seconds cannot wait for.

    Raises:
        AttributeError: there is nothing of that name any more, so that the test would wait, or prove nothing.
    """
    for name, value in times.items():
        found = [module for module in TIMED if hasattr(module, name)]
        if not found:
            raise AttributeError(f"no {name} in {TIMED}")
        for module in found:
            setattr(module, name, value)


def main(setup: dict[str, Any]) -> None:
    """Carries the steps out; the error of the last one is the process's."""
    shorten(setup.get("times", {}))
    pipeline = Pipeline.model_validate(setup["pipeline"])
    source = pipeline.source
    working = context.Work(
        pipeline,
        Ledger(open_engine(setup["ledger"])),
        _launcher(setup.get("launcher", "submit")),
        lambda: service_of(source.places, connections_of(os.environ), Patience(10)),
        context.Run("tail", setup["run"], setup.get("airflow", "")),
        lambda _: dict(setup["catalog"]),
    )
    told = carry_out(working, setup["steps"], setup.get("transaction", ""), setup.get("token", 0))
    if "out" in setup:
        Path(setup["out"]).write_text(json.dumps({**vars(told), "cause": None}))
    if told.cause is not None:
        raise told.cause


def _launcher(kind: str) -> Launcher:
    if kind == "session":
        from tests.scenarios import SessionLauncher
        from tests.sessions import start_spark

        return SessionLauncher(start_spark())
    return SubprocessLauncher(say=lambda line: print(line, flush=True), resident=kind == "resident")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
