"""`slshudi plan`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, TextIO

from airflow_provider_slshudi.cli.common import Commands, add_json, add_pipeline, print_json, print_table, work_of

if TYPE_CHECKING:
    from airflow_provider_slshudi.ranges import Range


def add_to(commands: Commands) -> None:
    """Adds the command."""
    command = commands.add_parser("plan", help="what the next batch would read; changes nothing")
    add_pipeline(command)
    add_json(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.protocol.plan import preview

    work = work_of(options.pipeline)
    ranges = preview(work)
    if options.json:
        print_json(options.out, {"pipeline": work.pipeline.name, "ranges": [asdict(item) for item in ranges]})
    else:
        show(options.out, f"Next batch of {work.pipeline.name}", ranges)
    return 0


def show(out: TextIO, title: str, ranges: Sequence[Range]) -> None:
    """Prints ranges that a batch would read."""
    rows = [(item.shard, item.begin, item.end, len(item), "gap" if item.gap else "") for item in ranges]
    print_table(out, title, ("shard", "begin", "end", "log groups", ""), rows)
