"""`slshudi recover`, `abandon`, `skip` and `quarantine`: what an operator decides by hand."""

from __future__ import annotations

import argparse
import getpass
import sys
from dataclasses import asdict
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.cli.common import Commands, add_json, add_pipeline, print_json, print_table, work_of
from airflow_provider_slshudi.exceptions import ConfigError, TerminalError

if TYPE_CHECKING:
    from airflow_provider_slshudi.ledger.records import Transaction
    from airflow_provider_slshudi.transaction.context import Work
    from airflow_provider_slshudi.transaction.evidence import Evidence


def add_abandon(commands: Commands) -> None:
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
    command.set_defaults(run=_abandon)


def _abandon(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.repair.abandon import abandon, evidence

    work = work_of(options.pipeline)
    _show_evidence(options, work, *evidence(work, options.transaction))
    if not options.reason:
        print("nothing was changed; --reason TEXT gives it up", file=options.out)
        return 0
    abandon(work, options.transaction, f"{options.reason} ({user()})")
    print(f"{options.transaction} was given up: its ranges are free to be planned again", file=options.out)
    return 0


def _show_evidence(options: argparse.Namespace, work: Work, found: Transaction, seen: Evidence) -> None:
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


UNDECIDED, PERSON = 1, 3
_LEASES = ("lease", "holder", "process", "expires (UTC)", "the ledger's clock (UTC)", "known of the process")


def add_recover(commands: Commands) -> None:
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
    command.set_defaults(run=_recover)


def _recover(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.repair.recover import break_leases, recover

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
        undecided = [asdict(item) for item in done.left]
        shown = {"pipeline": work.pipeline.name, "decided": decided, "left": undecided}
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


def add_skip(commands: Commands) -> None:
    """Adds the command."""
    command = commands.add_parser(
        "skip",
        help="give up log groups that cannot be read; a batch records them as a gap",
        description="Pulls each unread log group of some cursors by itself and shows those that cannot be read; with "
        "--reason commits a batch that records all unread ones as a gap, and keeps their bytes below "
        ".hoodie/slshudi/skipped. Their logs will not be in the table.",
    )
    add_pipeline(command)
    command.add_argument("cursors", metavar="SHARD:BEGIN-END", help="cursors of a shard, the end excluded")
    command.add_argument("--reason", help="why; stays in the pipeline's history. Without it nothing is changed")
    command.set_defaults(run=_skip)


def _skip(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.handover.names import Act
    from airflow_provider_slshudi.repair.actions import perform
    from airflow_provider_slshudi.repair.skip import parsed, unreadable

    work, cursors = work_of(options.pipeline), parsed(options.cursors)
    if options.reason:
        done = perform(work, lambda run: None, Act.SKIP, user(), options.reason, cursors=options.cursors)
        print(done, file=options.out)
        return 0
    rows = [(item.shard, item.begin, why) for item, why in unreadable(work, cursors).items()]
    print_table(options.out, f"{cursors}: log groups that cannot be read", ("shard", "cursor", "why"), rows)
    print("nothing was changed; --reason TEXT skips all of these cursors that no batch has read", file=options.out)
    return 0


def add_quarantine(commands: Commands) -> None:
    """Adds the commands."""
    quarantine = commands.add_parser("quarantine", help="the logs that do not fit: what they are, and back with them")
    actions = quarantine.add_subparsers(required=True, metavar="ACTION")
    show = actions.add_parser("show", help="how many there are, by column and reason")
    add_pipeline(show)
    add_json(show)
    show.set_defaults(run=_show_quarantined)
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
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return int((moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp())


def _show_quarantined(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.repair.replay import show

    work = work_of(options.pipeline)
    groups = show(work)
    if options.json:
        print_json(
            options.out, {"pipeline": work.pipeline.name, "table": work.pipeline.quarantine_path, "logs": groups}
        )
        return 0
    rows = [
        (
            item["column"],
            item["type"],
            item["reason"],
            item["logs"],
            *map(_shown, (item["first_time"], item["last_time"])),
        )
        for item in groups
    ]
    title = f"{work.pipeline.name}: quarantine at {work.pipeline.quarantine_path}"
    print_table(options.out, title, ("column", "type", "reason", "logs", "first (UTC)", "last (UTC)"), rows)
    return 0


def _replay(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.handover.batch_files import Selection
    from airflow_provider_slshudi.repair.recover import recover
    from airflow_provider_slshudi.repair.replay import replay

    work = work_of(options.pipeline)
    # As in a batch's first step: recovery decides what earlier runs left before anything new is written.
    recover(work, lambda run: None)
    selection = Selection(options.transaction, options.column, options.reason, options.since, options.until)
    done = replay(work, selection)
    if options.json:
        fields: dict[str, Any] = {} if done is None else asdict(done)
        print_json(options.out, {"pipeline": work.pipeline.name, **fields})
    elif done is None:
        print(f"{work.pipeline.name}: nothing was ever quarantined", file=options.out)
    else:
        title = f"{work.pipeline.name}: {done.moved} logs went back, by transaction {done.transaction}; still unfit"
        rows = [(*name.split(" "), count) for name, count in sorted(done.left.items())]
        print_table(options.out, title, ("column", "reason", "logs"), rows)
    return 0


def _shown(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)
