"""The command `slshudi`: looks at pipelines and their ledger, proves tables, runs the demo.

Connections are Airflow's: AIRFLOW_CONN_* variables, secrets backends, or its metadata database.
Exit codes: 0 well, 1 an error or a failed proof, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, TextIO

from airflow_provider_slshudi.exceptions import SlsHudiError

if TYPE_CHECKING:
    from airflow_provider_slshudi.ledger.ledger import Ledger
    from airflow_provider_slshudi.ledger.records import Transaction
    from airflow_provider_slshudi.protocol.work import Work


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] and arguments[0] in _FORWARDED:
        return _FORWARDED[arguments[0]](arguments[1:])
    options = _parser().parse_args(arguments)
    # As Airflow's own commands do: connections may also come from its metadata database.
    os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
    os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "WARNING")
    options.out = sys.stdout
    try:
        with redirect_stdout(sys.stderr):  # where Airflow's log belongs
            return int(options.run(options))
    except SlsHudiError as error:
        print(f"slshudi: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slshudi", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    commands.add_parser("demo", help="the whole way on this machine, with a proof")
    commands.add_parser("local-sls", help="an SLS-compatible server on this machine, in the foreground")

    plan = commands.add_parser("plan", help="what the next batch would read; changes nothing")
    plan.add_argument("pipeline", help="a pipeline's name or file")
    plan.set_defaults(run=_plan)

    ledger = commands.add_parser("ledger", help="what was decided").add_subparsers(required=True, metavar="COMMAND")
    show = ledger.add_parser("show", help="transactions, or one of them in full")
    show.add_argument("transaction", nargs="?", help="a transaction's id")
    show.add_argument("--pipeline", help="only of this pipeline, by its name in the ledger")
    show.add_argument("--limit", type=int, default=20, help="how many of each pipeline, newest first (default: 20)")
    show.set_defaults(run=_show)

    rebuild = ledger.add_parser("rebuild", help="make a pipeline's ledger anew from its table; pause its DAGs first")
    rebuild.add_argument("pipeline", help="a pipeline's name or file")
    rebuild.set_defaults(run=_rebuild)

    verify = commands.add_parser("verify", help="the table's rows against the ledger")
    verify.add_argument("pipeline", help="a pipeline's name or file")
    verify.set_defaults(run=_verify)
    for command in (plan, show, rebuild, verify):
        command.add_argument("--json", action="store_true", help="JSON instead of a table")
    return parser


def _demo(arguments: Sequence[str]) -> int:
    from airflow_provider_slshudi import demo

    return demo.main(arguments)


def _local_sls(arguments: Sequence[str]) -> int:
    os.execv(sys.executable, [sys.executable, "-m", "airflow_provider_slshudi.local", *arguments])  # noqa: S606


_FORWARDED: dict[str, Callable[[Sequence[str]], int]] = {"demo": _demo, "local-sls": _local_sls}


def _work(name_or_path: str) -> Work:
    from airflow_provider_slshudi.hooks.work import work_of
    from airflow_provider_slshudi.protocol.work import Run

    return work_of(name_or_path, Run("slshudi", f"process-{os.getpid()}"))


def _plan(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.protocol.plan import preview

    work = _work(options.pipeline)
    ranges = preview(work)
    if options.json:
        _print_json(options.out, {"pipeline": work.pipeline.name, "ranges": [asdict(item) for item in ranges]})
    else:
        rows = [(item.shard, item.begin, item.end, len(item), "gap" if item.gap else "") for item in ranges]
        _print_table(
            options.out, f"Next batch of {work.pipeline.name}", ("shard", "begin", "end", "log groups", ""), rows
        )
    return 0


def _show(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi import settings
    from airflow_provider_slshudi.hooks.ledger import LedgerHook

    ledger = LedgerHook(settings.ledger_conn_id()).ledger()
    if options.transaction:
        _show_one(ledger, options)
        return 0
    names = [options.pipeline] if options.pipeline else [item.name for item in ledger.pipelines()]
    found = [item for name in names for item in ledger.last(name, options.limit)]
    if options.json:
        _print_json(options.out, [_as_dict(item) for item in found])
    else:
        columns = ("transaction", "pipeline", "kind", "state", "instant", "rows", "changed (UTC)", "run")
        _print_table(options.out, "Transactions", columns, [_row(item) for item in found])
    return 0


def _show_one(ledger: Ledger, options: argparse.Namespace) -> None:
    id_ = options.transaction
    found, totals = ledger.get(id_), {item.range: item for item in ledger.totals(id_)}
    ranges = []
    for item in ledger.ranges(id_):
        read = totals.get(item)
        ranges.append({**asdict(item), "rows": read and read.rows, "bytes": read and read.bytes})
    events = ledger.events(id_)
    if options.json:
        _print_json(options.out, {**_as_dict(found), "ranges": ranges, "events": [asdict(event) for event in events]})
        return
    _print_table(
        options.out, f"Transaction {id_}", ("", ""), [(name, value) for name, value in _as_dict(found).items()]
    )
    _print_table(options.out, "Ranges", tuple(ranges[0]) if ranges else (), [tuple(item.values()) for item in ranges])
    _print_table(
        options.out,
        "Events",
        ("at (UTC)", "what", "detail"),
        [(event.at, event.what, event.detail) for event in events],
    )


def _rebuild(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.protocol.rebuild import rebuild

    work = _work(options.pipeline)
    found = rebuild(work)
    if options.json:
        _print_json(options.out, {"pipeline": work.pipeline.name, **asdict(found)})
    else:
        print(
            f"{work.pipeline.name}: {found.committed} committed transactions of the table are in the ledger, "
            f"{len(found.rolled_back)} pending instants were rolled back",
            file=options.out,
        )
    return 0


def _verify(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.protocol.verify import verify

    work = _work(options.pipeline)
    report = verify(work)
    found = report.to_dict()
    if options.json:
        _print_json(options.out, found)
    else:
        shards = found["shards"]
        _print_table(
            options.out,
            f"{work.pipeline.name}: {'every log once' if report.ok else 'NOT every log once'}",
            tuple(shards[0]) if shards else (),
            [tuple(item.values()) for item in shards],
        )
        if found["unreadable"]:
            print(f"{found['unreadable']} rows have a key that names no shard and cursor", file=options.out)
    return 0 if report.ok else 1


def _as_dict(transaction: Transaction) -> dict[str, Any]:
    """Everything but the manifest, which lists every file."""
    fields = asdict(transaction)
    del fields["manifest"]
    return fields


def _row(item: Transaction) -> tuple[object, ...]:
    run = f"{item.dag_id}/{item.run_id}"
    return (item.id, item.pipeline, item.kind.value, item.state.value, item.instant, item.rows, item.changed, run)


def _print_json(out: TextIO, value: Any) -> None:
    print(json.dumps(value, default=_plain, indent=2), file=out)


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _print_table(out: TextIO, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    # What reads a pipe has no width to keep to.
    console = Console(file=out, highlight=False, markup=False, width=None if out.isatty() else 240)
    console.print(table if table.row_count else f"{title}: none")


def _cell(value: object) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, Enum):
        return str(value.value)
    return "" if value is None else str(value)


if __name__ == "__main__":
    sys.exit(main())
