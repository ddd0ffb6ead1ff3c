"""What keeps the interpreters of drivers and tasks small."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

_CORE = re.compile(r"spark-core_[^/]*\.jar$")


def lean(path: Sequence[str]) -> list[str]:
    """Python's search path without Spark's jar, which has no module, and without the zips of the installed PySpark."""
    kept = [entry for entry in path if not _CORE.search(entry)]
    found = PathFinder.find_spec("pyspark", [entry for entry in kept if not entry.endswith(".zip")])
    if found is None or found.origin is None:
        return kept
    zips = Path(found.origin).resolve().parent / "python" / "lib"
    return [entry for entry in kept if Path(entry).resolve().parent != zips]


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
