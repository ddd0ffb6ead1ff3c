"""What Airflow's settings mean for pipelines."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from airflow_provider_slshudi.doctor.finding import Seen, ok, warning, wrong
from airflow_provider_slshudi.storage import owners

_HEARTBEAT_SECONDS = 300
_LOCAL_EXECUTOR = "LocalExecutor"
_LOCAL_BUNDLE = "airflow.dag_processing.bundles.local.LocalDagBundle"


def heartbeat(seconds: int) -> Seen:
    """`[scheduler] task_instance_heartbeat_timeout`."""
    what = f"{seconds} s: so long a batch waits that died between two steps, or on another machine"
    if seconds <= _HEARTBEAT_SECONDS:
        return ok(what)
    return warning(what, f"[scheduler] task_instance_heartbeat_timeout: Airflow's own is {_HEARTBEAT_SECONDS}")


def parallelism(tasks: int, pipelines: int) -> Seen:
    """`[core] parallelism`."""
    what = f"{tasks} tasks at a time; pipelines: {pipelines}"
    if tasks >= pipelines:
        return ok(what)
    return warning(f"{what}: they wait for one another", "raise [core] parallelism")


def test_button(value: str) -> Seen:
    """`[core] test_connection`."""
    if value.strip().lower() == "enabled":
        return ok("Enabled: the forms of connections test what is filled in")
    return ok(f"{value}: the forms of connections do not test; this command asks the same")


def executor(names: Sequence[str], sqlite: bool) -> Seen:
    """`[core] executor`."""
    executors = ", ".join(names)
    others = [name for name in names if name.rpartition(".")[2] != _LOCAL_EXECUTOR]
    if sqlite and others:
        return wrong(
            f"{executors}, and the ledger is an SQLite file: machines would have ledgers of their own",
            "use PostgreSQL for the ledger, or the LocalExecutor alone",
        )
    return ok(executors)


def dags(folder: Path, bundles: Mapping[str, str]) -> Seen:
    """Where DAG files come from; `bundles` are class paths by name."""
    others = [name for name, class_path in bundles.items() if class_path != _LOCAL_BUNDLE]
    if not others and not _readable(folder):
        return wrong(
            f"{folder} is no folder that {owners.this_user()} can read", "set [core] dags_folder, or make the folder"
        )
    return ok(", ".join(others) if others else str(folder))


def pipelines(folder: Path | None, names: Sequence[str]) -> Seen:
    """The pipeline files: of the one `folder` that is set, or, if none is, of all bundles."""
    mend = "set [slshudi] pipelines_folder (AIRFLOW__SLSHUDI__PIPELINES_FOLDER)"
    if folder is None:
        if not names:
            return warning("no bundle has a folder of pipeline files", f"put one beside the DAG file, or {mend}")
        return ok(f"beside their DAG files: {', '.join(names)}")
    if not _readable(folder):
        return wrong(f"{folder} is no folder that {owners.this_user()} can read", mend)
    if not names:
        return warning(f"{folder} has no pipeline files", f"put one there, or {mend}")
    return ok(f"{folder}: {', '.join(names)}")


def _readable(folder: Path) -> bool:
    return folder.is_dir() and owners.may(folder, os.R_OK | os.X_OK)
