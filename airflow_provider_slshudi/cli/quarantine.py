"""`slshudi quarantine`."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from airflow_provider_slshudi.cli.common import Commands, add_json, add_pipeline, print_json, print_table, work_of


def add_to(commands: Commands) -> None:
    """Adds the commands."""
    quarantine = commands.add_parser("quarantine", help="the logs that do not fit: what they are, and back with them")
    actions = quarantine.add_subparsers(required=True, metavar="ACTION")
    show = actions.add_parser("show", help="how many there are, by column and reason")
    add_pipeline(show)
    add_json(show)
    show.set_defaults(run=_show)
    replay = actions.add_parser(
        "replay",
        help="put those that fit by now into the table",
        description="Converts quarantined logs by the pipeline's file as it is now. What fits goes to the main table "
        "and leaves the quarantine, in one transaction. Without options all of them are tried.",
    )
    add_pipeline(replay)
    replay.add_argument("--transaction", metavar="ID", help="only logs of this batch")
    replay.add_argument("--column", metavar="NAME", help="only logs that did not fit this column")
    replay.add_argument(
        "--reason", metavar="REASON", help="only logs that did not fit for this reason, as `show` has it"
    )
    replay.add_argument("--since", type=_time, metavar="TIME", help="only logs of this time or later, by ISO 8601; UTC")
    replay.add_argument("--until", type=_time, metavar="TIME", help="only logs before this time")
    add_json(replay)
    replay.set_defaults(run=_replay)


def _time(text: str) -> int:
    found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return int((found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp())


def _show(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.protocol.replay import show

    work = work_of(options.pipeline)
    found = show(work)
    if options.json:
        print_json(options.out, {"pipeline": work.pipeline.name, "table": work.pipeline.quarantine_path, "logs": found})
        return 0
    rows = [
        (
            item["column"],
            item["type"],
            item["reason"],
            item["logs"],
            *map(_shown, (item["first_time"], item["last_time"])),
        )
        for item in found
    ]
    title = f"{work.pipeline.name}: quarantine at {work.pipeline.quarantine_path}"
    print_table(options.out, title, ("column", "type", "reason", "logs", "first (UTC)", "last (UTC)"), rows)
    return 0


def _replay(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.notes.handover import Selection
    from airflow_provider_slshudi.protocol.recover import recover
    from airflow_provider_slshudi.protocol.replay import replay

    work = work_of(options.pipeline)
    # As in a batch's first step: recovery decides what earlier runs left before anything new is written.
    recover(work, lambda run: None)
    selection = Selection(options.transaction, options.column, options.reason, options.since, options.until)
    done = replay(work, selection)
    if options.json:
        found: dict[str, Any] = {} if done is None else asdict(done)
        print_json(options.out, {"pipeline": work.pipeline.name, **found})
    elif done is None:
        print(f"{work.pipeline.name}: nothing was ever quarantined", file=options.out)
    else:
        title = f"{work.pipeline.name}: {done.moved} logs went back, by transaction {done.transaction}; still unfit"
        rows = [(*name.split(" "), count) for name, count in sorted(done.left.items())]
        print_table(options.out, title, ("column", "reason", "logs"), rows)
    return 0


def _shown(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)
