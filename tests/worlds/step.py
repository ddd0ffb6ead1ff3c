"""`python -m tests.worlds.step SETUP`: steps of one run in a process of their own; how they went is left in a file.

SETUP is JSON: pipeline, ledger, run, steps, out, and for most steps transaction and token.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.ledger.engine import open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Transaction
from airflow_provider_slshudi.repair.abandon import abandon
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.repair.recover import break_leases, recover
from airflow_provider_slshudi.services import metadata
from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.sls.faults import Patience
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.spark.launch import Launcher, SubprocessLauncher
from airflow_provider_slshudi.transaction import context, plan, resolve
from tests.crash.cases import Step
from tests.crash.step import STEPS

AIRFLOW = "worlds"
"""The name of the Airflow whose runs these are."""

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


def carry_out(
    working: context.Work,
    wanted: list[str],
    id_: str = "",
    token: int = 0,
    did: Callable[[dict[str, Any]], None] = print,
) -> Transaction | None:
    """Carries steps and commands out, one after the other; gives the transaction that was planned last."""
    planned: Transaction | None = None
    for name in wanted:
        if name in COMMANDS:
            COMMANDS[name](working, id_)
        elif name == Step.PLAN.value:
            planned = plan.tail(working)
            if planned is None:
                break
            id_, token = planned.id, planned.token
        else:
            STEPS[Step(name)](working, id_, token)
        did({"step": name, "transaction": id_, "token": token})
    return planned


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
        lambda: LogService(SlsConnection.from_env(os.environ), source.project, source.logstore, patience=Patience(10)),
        context.Run("tail", setup["run"], AIRFLOW),
    )
    told: dict[str, Any] = {"done": [], "transaction": setup.get("transaction", ""), "token": setup.get("token", 0)}

    def did(what: dict[str, Any]) -> None:
        told.update({key: what[key] for key in ("transaction", "token")})
        told["done"].append(what["step"])

    try:
        carry_out(working, setup["steps"], told["transaction"], told["token"], did)
    except Exception as error:
        ids = {key: value for key, value in vars(error).items() if isinstance(value, (str, int, type(None)))}
        told["error"] = {"type": type(error).__name__, "text": str(error), "ids": ids}
        raise
    finally:
        Path(setup["out"]).write_text(json.dumps(told))


def _launcher(kind: str) -> Launcher:
    if kind == "session":
        from tests.scenarios import SessionLauncher
        from tests.sessions import start_spark

        return SessionLauncher(start_spark())
    return SubprocessLauncher(say=lambda line: print(line, flush=True), resident=kind == "resident")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
