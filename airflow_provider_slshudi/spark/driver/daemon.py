"""Spark's daemon of Python workers on a short sys.path, with all that tasks use imported before it forks."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from airflow_provider_slshudi.exceptions import ExecutorUnfit
from airflow_provider_slshudi.spark import python_archive

_CORE = re.compile(r"spark-core_[^/]*\.jar$")


def lean(path: Sequence[str]) -> list[str]:
    """Python's search path without Spark's jar, which has no module, and without the zips of the installed PySpark."""
    entries = [entry for entry in path if not _CORE.search(entry)]
    spec = PathFinder.find_spec("pyspark", [entry for entry in entries if not entry.endswith(".zip")])
    if spec is None or spec.origin is None:
        return entries
    zips = Path(spec.origin).resolve().parent / "python" / "lib"
    return [entry for entry in entries if Path(entry).resolve().parent != zips]


class _Absent:
    """A finder for which pandas is not installed. An entry None in `sys.modules` would not do: Cython takes it."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("nothing here uses pandas", name=name)


def without_pandas() -> None:
    """Makes pandas look as if it were not installed. Call it before Arrow makes its first value.

    For that, Arrow imports pandas if it can: some 0.3 CPU s and 45 MB of a process that does not use it.
    """
    sys.meta_path.insert(0, _Absent)


def _load(spark: str) -> None:
    """Imports what tasks use; ends this process where it is an unfit executor's."""
    if python_archive.EXPECTED not in os.environ:
        # On the driver's own machine, what cannot be imported is the task's matter, whose error says so.
        with suppress(Exception):
            from airflow_provider_slshudi.spark.driver import append, upsert
        return
    try:
        python_archive.require_fit(os.environ, spark)
        _join_google()
        from airflow_provider_slshudi.spark.driver import append, upsert  # noqa: F401
    except Exception as error:
        fault = error if isinstance(error, ExecutorUnfit) else python_archive.unfit(f"{type(error).__name__}: {error}")
        # Spark shows the text in lines of its own, so in one.
        sys.exit(f"{ExecutorUnfit.__module__}.{ExecutorUnfit.__name__}: {' '.join(str(fault).split())}")


def _join_google() -> None:
    """Makes our `google.protobuf` one of an executor's own package `google`, if that has one with an `__init__`."""
    ours = Path(python_archive.__file__).parents[2] / "google"
    if ours.is_dir() and find_spec("google") is not None:
        path = import_module("google").__path__
        if str(ours) not in path:
            path.append(str(ours))


def main() -> None:
    """Loads what tasks use, and serves Spark until it closes standard input."""
    entries = lean(sys.path)
    for entry in {*sys.path} - {*entries}:
        sys.path_importer_cache.pop(entry, None)
    sys.path[:] = entries
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
