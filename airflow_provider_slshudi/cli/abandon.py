"""`slshudi abandon`."""

from __future__ import annotations

import argparse
import getpass
from typing import TYPE_CHECKING

from airflow_provider_slshudi.cli.common import Commands, add_pipeline, print_table, work_of

if TYPE_CHECKING:
    from airflow_provider_slshudi.ledger.records import Transaction
    from airflow_provider_slshudi.protocol.evidence import Evidence
    from airflow_provider_slshudi.protocol.work import Work


def add_to(commands: Commands) -> None:
    """Adds the command."""
    command = commands.add_parser(
        "abandon",
        help="give up a batch that nothing else decides; its ranges are read again",
        description="Shows what ledger and table have of a transaction; with --reason gives it up: a run that works "
        "on it is fenced off, its instant is rolled back, and a later batch reads its ranges. What is committed is not "
        "given up.",
    )
    add_pipeline(command)
    command.add_argument("transaction", help="a live transaction's id, from `slshudi ledger show`")
    command.add_argument("--reason", help="why; stays in the transaction's history. Without it nothing is changed")
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.protocol.abandon import abandon, evidence

    work = work_of(options.pipeline)
    _show(options, work, *evidence(work, options.transaction))
    if not options.reason:
        print("nothing was changed; --reason TEXT gives it up", file=options.out)
        return 0
    abandon(work, options.transaction, f"{options.reason} ({user()})")
    print(f"{options.transaction} was given up: its ranges are free to be planned again", file=options.out)
    return 0


def _show(options: argparse.Namespace, work: Work, found: Transaction, seen: Evidence) -> None:
    facts = {
        "ledger": found.state,
        "timeline": seen.state,
        "instant": seen.instant,
        "run": f"{found.dag_id}/{found.run_id}",
        "heartbeat (UTC)": found.heartbeat,
        "rows": found.rows,
        "ranges": len(work.ledger.ranges(found.id)),
    }
    print_table(options.out, f"Transaction {found.id}", ("", ""), list(facts.items()))
    events = [(event.at, event.what, event.detail) for event in work.ledger.events(found.id)]
    print_table(options.out, "Events", ("at (UTC)", "what", "detail"), events)


def user() -> str:
    """The name of the operator."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "a user without a name"
