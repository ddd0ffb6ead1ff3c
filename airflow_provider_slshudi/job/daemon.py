"""The process from which Spark forks its Python workers, with all loaded that our tasks use.

PySpark's own daemon compiles PySpark out of a zip. Its workers import what a task needs one by one, read the directory
of Spark's largest jar before each task, and walk over all loaded modules in search of garbage after each. Here this
happens once, or not at all. `spark.python.daemon.module` names this module (SPARK-22959).
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import redirect_stdout, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from airflow_provider_slshudi.exceptions import ExecutorUnfit
from airflow_provider_slshudi.job.lean import lean, without_pandas
from airflow_provider_slshudi.spark import executors


def _load(spark: str) -> None:
    """Imports what tasks use; ends this process where it is an unfit executor's."""
    if executors.EXPECTED not in os.environ:
        # On the driver's own machine, what cannot be imported is the task's matter, whose error says so.
        with suppress(Exception):
            from airflow_provider_slshudi.job import append, upsert
        return
    try:
        executors.require_fit(os.environ, spark)
        _join_google()
        from airflow_provider_slshudi.job import append, upsert  # noqa: F401
    except Exception as error:
        found = error if isinstance(error, ExecutorUnfit) else executors.unfit(f"{type(error).__name__}: {error}")
        # Spark shows the text in lines of its own, so in one.
        sys.exit(f"{ExecutorUnfit.__module__}.{ExecutorUnfit.__name__}: {' '.join(str(found).split())}")


def _join_google() -> None:
    """Makes our `google.protobuf` one of an executor's own package `google`, if that has one with an `__init__`."""
    ours = Path(executors.__file__).parents[2] / "google"
    if ours.is_dir() and find_spec("google") is not None:
        path = import_module("google").__path__
        if str(ours) not in path:
            path.append(str(ours))


def main() -> None:
    """Loads what tasks use, and serves Spark until it closes standard input."""
    kept = lean(sys.path)
    for entry in {*sys.path} - {*kept}:
        sys.path_importer_cache.pop(entry, None)
    sys.path[:] = kept
    without_pandas()
    from pyspark import __version__, worker  # noqa: F401
    from pyspark.daemon import manager

    # Spark reads a port from standard output, and takes standard error into the task's error if there is none.
    with redirect_stdout(sys.stderr):
        _load(__version__)

    # Workers look for garbage in what their task made alone, and share the memory of everything else.
    gc.collect()
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
