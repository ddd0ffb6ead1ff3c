"""`python -m tests.crash.step SETUP`: one step of the protocol in a process of its own, the task process of a case.

SETUP is JSON: pipeline, ledger, catalog, run, step, and for most steps transaction and token; `resident` where a
process that stays may do its job. The log service's keys come from the environment.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.ledger.engine import open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.services import maintenance, metadata
from airflow_provider_slshudi.services.rewrite import cluster, compact
from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.sls.faults import Patience
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.spark import launch
from airflow_provider_slshudi.transaction import context, plan, resolve, settle, steps
from tests.crash.cases import Step


def main(setup: dict[str, Any]) -> None:
    """Runs the step; its error is the process's."""
    # What a test of minutes cannot wait for: {"COMMIT_SECONDS": 8.0, ...}
    for name, value in setup.get("times", {}).items():
        for module in (context, resolve):
            if hasattr(module, name):
                setattr(module, name, value)
    resident = setup.get("resident", False)
    pipeline = Pipeline.model_validate(setup["pipeline"])
    source = pipeline.source
    working = context.Work(
        pipeline,
        Ledger(open_engine(setup["ledger"])),
        launch.SubprocessLauncher(say=lambda line: print(line, flush=True), resident=resident),
        lambda: LogService(SlsConnection.from_env(os.environ), source.project, source.logstore, patience=Patience(10)),
        context.Run("tail", setup["run"]),
        lambda _: dict(setup["catalog"]),
    )
    STEPS[Step(setup["step"])](working, setup.get("transaction", ""), setup.get("token", 0))


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


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
