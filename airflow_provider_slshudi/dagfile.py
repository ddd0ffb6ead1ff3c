"""Which DAG file names a pipeline, and where its bundle begins."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.sdk import DAG

_PACKAGE = __name__.partition(".")[0]


@dataclass(frozen=True)
class DagFile:
    """A DAG file on this machine, or the archive that holds it.

    Attributes:
        path: the file.
        root: the folder of the bundle that it lies in; the file's own folder if it lies in none.
    """

    path: Path
    root: Path


def calling() -> DagFile | None:
    """The DAG file that Airflow is parsing, also if the call comes from a module that it imports.

    If Airflow is not parsing, a plain import for example, it is the file that calls this package; None in a shell.
    """
    # Airflow tells a DAG file neither its path nor its bundle until it is parsed: only the DagBag knows, further up.
    bags = getattr(sys.modules.get("airflow.dag_processing.dagbag"), "DagBag", ())
    caller: FrameType | None = None
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        bag = frame.f_locals.get("self")
        if isinstance(bag, bags) and "filepath" in frame.f_locals:
            return _within(Path(bag.bundle_path or bag.dag_folder), Path(frame.f_locals["filepath"]))
        if caller is None and str(frame.f_globals.get("__name__")).partition(".")[0] != _PACKAGE:
            caller = frame
        frame = frame.f_back
    file = caller and caller.f_globals.get("__file__")
    return _within(None, Path(file)) if file else None


def of(dag: DAG) -> DagFile:
    """The file of a DAG that Airflow has parsed: in a task the worker's own, of the bundle's version that runs."""
    path, relative = Path(dag.fileloc), Path(dag.relative_fileloc or dag.fileloc)
    return _within(None if relative.is_absolute() else path.parents[len(relative.parts) - 1], path)


def _within(root: Path | None, path: Path) -> DagFile:
    # A DAG in an archive has a path below the archive's.
    file = next((candidate for candidate in (path, *path.parents) if candidate.is_file()), path).absolute()
    root = file.parent if root is None else root.absolute()
    return DagFile(file, root if root in file.parents else file.parent)
