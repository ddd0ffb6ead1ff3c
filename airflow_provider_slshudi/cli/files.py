"""New files, written together."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from airflow_provider_slshudi.exceptions import ConfigError


def require_free(path: Path) -> None:
    """Raises ConfigError if something has this path."""
    if os.path.lexists(path):
        raise ConfigError(
            f"{path} is there already and is not overwritten: choose another name, or move it away", source=str(path)
        )


def write_new(files: Mapping[Path, str]) -> None:
    """Writes files that are not there yet, with their folders: each appears whole, and all of them or none.

    Raises:
        ConfigError: one is there already, or cannot be written; nothing is left.
    """
    with ExitStack() as undo, ExitStack() as parts:
        written = []
        for path, text in files.items():
            with _naming(path):
                _make_folder(path.parent, undo)
                part = path.with_name(f".{uuid4().hex}.part")
                parts.callback(part.unlink, missing_ok=True)
                with part.open("x", encoding="utf-8") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
            written.append(part)
        for path, part in zip(files, written, strict=True):
            with _naming(path):
                os.link(part, path)  # fails where something has this path
            undo.callback(path.unlink)
        undo.pop_all()


def _make_folder(folder: Path, undo: ExitStack) -> None:
    for missing in reversed([each for each in (folder, *folder.parents) if not each.exists()]):
        missing.mkdir()
        undo.callback(_remove, missing)


def _remove(folder: Path) -> None:
    with suppress(OSError):  # another process has put something there
        folder.rmdir()


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        require_free(path)
        raise ConfigError(f"{path} cannot be written: {error}", source=str(path)) from error
