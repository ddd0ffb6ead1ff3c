"""`slshudi recover`."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict

from airflow_provider_slshudi.cli.common import Commands, add_json, add_pipeline, print_json, print_table, work_of
from airflow_provider_slshudi.exceptions import ConfigError, TerminalError

UNDECIDED, PERSON = 1, 3
_LEASES = ("lease", "holder", "process", "expires (UTC)", "the ledger's clock (UTC)", "known of the process")


def add_to(commands: Commands) -> None:
    """Adds the command."""
    command = commands.add_parser(
        "recover",
        help="decide now what dead runs left undecided",
        description="Without Airflow's scheduler to ask, a transaction counts as dead once its heartbeat is old, or "
        "where it is named. Exit codes: 0 nothing is left undecided, 1 something is, 3 a person has to look.",
    )
    add_pipeline(command)
    command.add_argument(
        "--transaction",
        action="append",
        default=[],
        metavar="ID",
        help="decide this one, also while a run works on it; may be given again",
    )
    command.add_argument(
        "--break-lease",
        metavar="REASON",
        help="before that, end the leases of runs that decide for the pipeline, or rewrite its files, and are not "
        "known to live; it is shown who had them. The reason goes into the history",
    )
    add_json(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.protocol.recover import break_leases, recover

    work = work_of(options.pipeline)
    broken = break_leases(work, options.break_lease) if options.break_lease else []
    if options.break_lease and not options.json:
        rows = [(item.lease, item.holder, item.process, item.expires, item.at, item.known) for item in broken]
        print_table(options.out, f"{work.pipeline.name}: leases that were broken", _LEASES, rows)
    try:
        done = recover(work, lambda run: None, options.transaction)
    except ConfigError:
        raise
    except TerminalError as error:
        print(f"slshudi: {error}", file=sys.stderr)
        return PERSON
    if options.json:
        decided = [{**asdict(item), "decision": item.decision.value} for item in done.decisions]
        left = [asdict(item) for item in done.left]
        shown = {"pipeline": work.pipeline.name, "decided": decided, "left": left}
        print_json(options.out, shown | ({"broken": [asdict(item) for item in broken]} if broken else {}))
    else:
        print_table(
            options.out,
            f"{work.pipeline.name}: decided",
            ("transaction", "ledger", "timeline", "instant", "decision", "why"),
            [
                (item.transaction, item.ledger, item.timeline, item.instant, item.decision, item.why)
                for item in done.decisions
            ],
        )
        print_table(
            options.out,
            f"{work.pipeline.name}: left alone",
            ("transaction", "state", "instant", "run", "heartbeat (UTC)", "why"),
            [tuple(asdict(item).values()) for item in done.left],
        )
    return UNDECIDED if done.left else 0
