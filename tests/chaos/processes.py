"""The processes of the run, by what they are."""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import suppress

import psutil

from airflow_provider_slshudi.spark.runtime import DAEMON
from tests.airflows import IDLE
from tests.chaos.place import Place
from tests.machine import arguments_of


def by_kind(place: Place) -> dict[str, list[psutil.Process]]:
    """All processes that may be killed."""
    components = {pid: kind_of_name(name) for name, pid in place.airflow.pids.items()}
    components[place.server.pid] = "log service"
    components |= {service.pid: kind_of_name(name) for name, service in place.services.items()}
    found: dict[str, list[psutil.Process]] = defaultdict(list)
    for process in psutil.Process().children(recursive=True):
        kind = components.get(process.pid) or kind_of(process)
        if kind:
            found[kind].append(process)
    return found


def kind_of_name(name: str) -> str:
    """What a component or service is of which there may be several, numbered ones."""
    return name.rstrip(" 0123456789")


def kind_of(process: psutil.Process) -> str | None:
    """What a process below Airflow's components is; none where it is not to be killed."""
    arguments = arguments_of(process)
    line = " ".join(arguments)
    if not line or IDLE in line:
        # An executor's idle worker holds the lock of the queue while it waits: without it no other worker gets work.
        return None
    if line.startswith("airflow worker -- LocalExecutor") or line.startswith("airflow supervisor"):
        return "worker"
    if line.startswith("airflow worker -- "):
        return "task"
    if "CoarseGrainedExecutorBackend" in line:
        return "executor"
    if "driver/resident_driver.py" in line:
        return "resident process"
    if "org.apache.spark.deploy.SparkSubmit" in line:
        return "spark-submit JVM"
    if DAEMON in line:
        return "pyspark worker"
    if any(argument.endswith("driver/__main__.py") for argument in arguments):
        return "driver"
    return None


def end_residents(place: Place) -> None:
    """Ends the resident processes, which would stay for a while."""
    for process in by_kind(place)["resident process"]:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def bury_adopted(place: Place) -> None:
    """Buries adopted children that have ended."""
    known = {*place.airflow.pids.values(), place.server.pid, *(service.pid for service in place.services.values())}
    for child in psutil.Process().children():
        if child.pid in known:
            continue
        with suppress(psutil.NoSuchProcess, ChildProcessError):
            if child.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(child.pid, os.WNOHANG)
