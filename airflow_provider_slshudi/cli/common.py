"""Helpers of all commands: their way to a pipeline, and tables and JSON on standard output."""

from __future__ import annotations

import argparse
import json
import os
import socket
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, TextIO

from airflow_provider_slshudi.exceptions import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from airflow_provider_slshudi.config.sources import Source
    from airflow_provider_slshudi.sls.service import LogService
    from airflow_provider_slshudi.transaction.context import Run, Work

_WIDEST = 1 << 24
"""Characters of a line that is no terminal's."""
Commands = Any
"""The result of argparse's `add_subparsers`."""


def add_pipeline(command: argparse.ArgumentParser, **changes: Any) -> None:
    """Adds the argument that names a pipeline; `changes` replace what argparse is told of it."""
    argument: Any = command.add_argument("pipeline", **{"help": "a pipeline's name or file", **changes})
    argument.completer = _complete


def add_json(command: argparse.ArgumentParser) -> None:
    """Adds the option that asks for JSON."""
    command.add_argument("--json", action="store_true", help="JSON instead of a table")


def _complete(**_: object) -> list[str]:
    """The names that a shell completes."""
    from airflow_provider_slshudi import settings

    return settings.pipeline_names()


def work_of(name_or_path: str) -> Work:
    """The pipeline, ledger, Spark and log service of a command; raises as `hooks.work.work_of`."""
    from airflow_provider_slshudi.hooks.work import work_of

    return work_of(name_or_path, run_of_command())


def run_of_command() -> Run:
    """Who is acting: this very call of a command."""
    from airflow_provider_slshudi.ledger.pipeline_rows import COMMANDS
    from airflow_provider_slshudi.sls.faults import PERSON
    from airflow_provider_slshudi.transaction.context import Run

    # Containers share process numbers, and a run may only go on with its own work.
    id_ = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:12]}"
    return Run(COMMANDS, id_, patience=PERSON)


def service_of(connection: str, project: str, logstore: str) -> LogService:
    """The log service for a command; raises as `SlsHook.connection`."""
    from airflow_provider_slshudi.hooks.sls import SlsHook
    from airflow_provider_slshudi.sls.faults import PERSON

    return SlsHook(connection).service(project, logstore, PERSON)


def service_of_source(source: Source) -> LogService:
    """The log service of a pipeline's source for a command; raises as `SlsHook.connection`."""
    from airflow_provider_slshudi.hooks.sls import SlsHook
    from airflow_provider_slshudi.sls.faults import PERSON
    from airflow_provider_slshudi.sls.logstores import service_of

    return service_of(source.places, [SlsHook(name).connection() for name in source.connections], PERSON)


def tell_unread(errors: Mapping[str, Exception]) -> None:
    """Tells a person, on standard error, of ledgers that could not be read, by their connections."""
    from airflow_provider_slshudi.cli.prompts import say

    for conn_id, error in errors.items():
        say(f"the ledger of connection {conn_id!r} could not be read: {error}")


def require_known(named: Iterable[str], known: Collection[str], errors: Mapping[str, Exception], command: str) -> None:
    """Refuses a pipeline that no ledger knows.

    Args:
        named: the pipelines that were asked for.
        known: those that the ledgers know.
        errors: of ledgers that could not be read.
        command: the command's name.

    Raises:
        ConfigError: names the first of them.
    """
    for name in named:
        if name not in known:
            no_ledger = "no ledger that can be read" if errors else "no ledger"
            raise ConfigError(
                f"{no_ledger} knows a pipeline {name!r}: a pipeline is known from its first run on",
                source=command,
                field="pipelines",
                value=name,
            )


def print_json(out: TextIO, value: Any) -> None:
    """Prints one JSON value, indented."""
    print(json.dumps(value, default=_plain, indent=2), file=out)


def print_table(out: TextIO, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints a table, or that it is empty.

    On a terminal that is narrower than the table each row becomes a block of lines, one for each cell, so that an id
    stays in one piece. Elsewhere columns are parted by spaces, as other programs read them.

    Args:
        out: where it is printed; its width counts if it is a terminal.
        title: stands above the table.
        columns: the headings.
        rows: the cells of each row, as many as `columns`.
    """
    from rich import box
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table

    cells = [[_cell(value) for value in row] for row in rows]
    on_terminal = out.isatty()
    table = Table(box=box.HEAVY_HEAD if on_terminal else None, pad_edge=on_terminal)
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in cells:
        table.add_row(*row)
    console = Console(file=out, highlight=False, markup=False, emoji=False, width=None if on_terminal else _WIDEST)
    if not cells:
        console.print(f"{title}: none", soft_wrap=True)
        return
    console.print(title, soft_wrap=True)
    if Measurement.get(console, console.options.update(max_width=_WIDEST), table).maximum <= console.width:
        console.print(table)
    else:
        _print_blocks(console, columns, cells)


def _print_blocks(console: Console, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints each row as lines of heading and cell."""
    width = max(map(len, columns))
    for row in rows:
        console.print()
        for name, cell in zip(columns, row, strict=True):
            console.print(f"{name:<{width}}  {cell}".rstrip(), soft_wrap=True)


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _cell(value: object) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, Enum):
        return str(value.value)
    return "" if value is None else str(value)
