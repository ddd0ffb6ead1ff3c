"""Questions of `slshudi init` at a terminal, and the files that it writes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from airflow_provider_slshudi.exceptions import ConfigError

T = TypeVar("T")


def on_terminal() -> bool:
    """Whether a person is there to be asked."""
    return sys.stdin.isatty()


def answer(option: str, question: str, given: str | None, default: str | None, check: Callable[[str], T]) -> T:
    """The value of an option: as given, else as a person says, else the default.

    Args:
        option: its name, with two dashes.
        question: what is asked for, in a few words.
        given: the option's value on the command line, if it is there.
        default: what an empty answer means; None or empty where it means nothing.
        check: makes the value of a text, or raises ValueError, which says what is expected.

    Raises:
        ConfigError: the value is wrong; or no person can be asked and there is no default.
    """
    interactive = given is None and on_terminal()
    while True:
        text = given if given is not None else _ask(option, question, default) if interactive else default
        if not text:
            raise ConfigError(
                f"{option} is missing ({question}): give it, since this is no terminal where it could be asked",
                source="slshudi",
                field=option,
            )
        try:
            return check(text)
        except ValueError as wrong:
            problem = f"{option}: {text!r}: {wrong}"
        if not interactive:
            raise ConfigError(problem, source="slshudi", field=option, value=text)
        say(problem)


def say(text: str) -> None:
    """Tells the person at the command at once; standard output is for results."""
    print(text, file=sys.stderr, flush=True)


def of_type(type_: Any) -> Callable[[str], Any]:
    """A check by one of the pipeline file's types."""
    from pydantic import TypeAdapter, ValidationError

    adapter = TypeAdapter(type_)

    def check(text: str) -> Any:
        try:
            return adapter.validate_python(text)
        except ValidationError as error:
            raise ValueError(error.errors()[0]["msg"].removeprefix("Value error, ")) from None

    return check


def _ask(option: str, question: str, default: str | None) -> str:
    """What a person answers."""
    hint = f" [{default}]" if default else ""
    while True:
        print(f"{question}{hint}: ", end="", file=sys.stderr, flush=True)
        try:
            line = sys.stdin.readline()
        except KeyboardInterrupt:
            line = ""
        if not line:
            say("")
            raise ConfigError(f"{option} was not answered; nothing was written", source="slshudi", field=option)
        if text := line.strip() or default:
            return text


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
