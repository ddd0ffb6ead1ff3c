"""`slshudi ledger show`, `slshudi ledger rebuild` and `slshudi ledger prune`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TextIO

from airflow_provider_slshudi.cli.common import Commands, add_json, add_pipeline, print_json, print_table, work_of
from airflow_provider_slshudi.exceptions import LedgerUnavailable
from airflow_provider_slshudi.ledger.records import Pruned

if TYPE_CHECKING:
    from airflow_provider_slshudi.hooks.ledger import LedgerHook
    from airflow_provider_slshudi.ledger.ledger import Ledger
    from airflow_provider_slshudi.ledger.records import Transaction

_PAUSE_SECONDS, _TELL_SECONDS = 0.05, 5.0


def add_to(commands: Commands) -> None:
    """Adds the commands."""
    ledger = commands.add_parser("ledger", help="what was decided").add_subparsers(required=True, metavar="COMMAND")
    show = ledger.add_parser("show", help="transactions, or one of them in full")
    show.add_argument("transaction", nargs="?", help="a transaction's id")
    show.add_argument("--pipeline", help="only of this pipeline, by its name in the ledger")
    show.add_argument(
        "--limit",
        type=_number("transactions", 1, 100_000),
        default=20,
        help="how many at most, newest first (default: 20)",
    )
    show.set_defaults(run=_show)

    rebuild = ledger.add_parser("rebuild", help="make a pipeline's ledger anew from its table; pause its DAGs first")
    add_pipeline(rebuild)
    rebuild.add_argument(
        "--table-is-gone",
        action="store_true",
        help="the table was deleted for good: forget all that was written to it, and read it again",
    )
    rebuild.set_defaults(run=_rebuild)

    prune = ledger.add_parser("prune", help="make the history of old batches small; beside running DAGs, too")
    prune.add_argument("--pipeline", help="only of this pipeline, by its name in the ledger (default: of all)")
    prune.add_argument(
        "--days", type=_number("days", 7, 36_500), default=90, help="batches that ended so long ago (default: 90)"
    )
    prune.set_defaults(run=_prune)
    for command in (show, rebuild, prune):
        add_json(command)


def _show(options: argparse.Namespace) -> int:
    try:
        ledger = _hook().ledger()
    except LedgerUnavailable:
        # A replica answers looks.
        ledger = _hook().ledger_as_it_is()
    if options.transaction:
        _show_one(ledger, options)
        return 0
    newest = (item for name in _names(ledger, options) for item in ledger.last(name, options.limit))
    transactions = sorted(newest, key=lambda item: item.id, reverse=True)[: options.limit]
    if options.json:
        print_json(options.out, [_as_dict(item) for item in transactions])
    else:
        columns = ("transaction", "pipeline", "kind", "state", "instant", "rows", "changed (UTC)", "run", "why aborted")
        print_table(options.out, "Transactions", columns, [_row(item) for item in transactions])
    return 0


def _show_one(ledger: Ledger, options: argparse.Namespace) -> None:
    from airflow_provider_slshudi.repair.recover import DECISION, decisions
    from airflow_provider_slshudi.views.history import said

    id_ = options.transaction
    transaction, totals = ledger.get(id_), {item.range: item for item in ledger.totals(id_)}
    ranges = []
    for item in ledger.ranges(id_):
        read = totals.get(item)
        counts = {name: read and getattr(read, name) for name in ("rows", "bytes", "filtered")}
        ranges.append({**asdict(item), **counts})
    events = ledger.events(id_)
    if options.json:
        print_json(
            options.out, {**_as_dict(transaction), "ranges": ranges, "events": [asdict(event) for event in events]}
        )
        return
    fields = _as_dict(transaction)
    fields["partitions"] = ", ".join(f"{path} {rows}" for path, rows in (transaction.partitions or {}).items())
    print_table(options.out, f"Transaction {id_}", ("", ""), list(fields.items()))
    print_table(options.out, "Ranges", tuple(ranges[0]) if ranges else (), [tuple(item.values()) for item in ranges])
    others = [(event.at, event.what, said(event.detail)) for event in events if event.what != DECISION]
    print_table(options.out, "Events", ("at (UTC)", "what", "detail"), others)
    rows = [
        (item.at, item.ledger, item.timeline, item.instant, item.decision, item.why, item.by)
        for item in decisions(events)
    ]
    columns = ("at (UTC)", "ledger", "timeline", "instant", "decision", "why", "by")
    print_table(options.out, "Decisions, with what was seen on both sides", columns, rows)


def _rebuild(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.repair.rebuild import rebuild

    work = work_of(options.pipeline)
    rebuilt = rebuild(work, options.table_is_gone)
    if options.json:
        print_json(options.out, {"pipeline": work.pipeline.name, **asdict(rebuilt)})
    else:
        print(
            f"{work.pipeline.name}: {rebuilt.committed} committed transactions of the table are in the ledger, "
            f"{len(rebuilt.rolled_back)} pending instants were rolled back",
            file=options.out,
        )
    return 0


def _prune(options: argparse.Namespace) -> int:
    ledger = _hook().ledger()
    before = ledger.now() - timedelta(days=options.days)
    out = None if options.json else options.out
    done = {name: _prune_one(ledger, name, before, out) for name in _names(ledger, options)}
    if options.json:
        print_json(options.out, [{"pipeline": name, **pruned.to_dict()} for name, pruned in done.items()])
    else:
        title = f"Batches that ended before {before.isoformat(' ', 'minutes')}"
        columns = ("pipeline", "packed batches", "events of theirs", "ranges of theirs")
        rows = [(name, pruned.transactions, pruned.events, pruned.ranges) for name, pruned in done.items()]
        print_table(options.out, title, columns, rows)
    return 0


def _prune_one(ledger: Ledger, name: str, before: datetime, out: TextIO | None) -> Pruned:
    done, last_report, last = Pruned(0, 0, 0, None), time.monotonic(), ""
    while True:
        began = time.monotonic()
        pruned = ledger.prune(name, before, last)
        if pruned.last is None:
            return done
        done, last = done + pruned, pruned.last
        if out is not None and time.monotonic() - last_report > _TELL_SECONDS:
            last_report = time.monotonic()
            print(f"{name}: {done.transactions:,} batches so far, up to {last}", file=out, flush=True)
        # Batches have their turn: on SQLite those who wait look for a free moment, and none keeps it for them.
        time.sleep(max(_PAUSE_SECONDS, time.monotonic() - began))


def _hook() -> LedgerHook:
    from airflow_provider_slshudi import settings
    from airflow_provider_slshudi.hooks.ledger import LedgerHook

    return LedgerHook(settings.ledger_conn_id())


def _names(ledger: Ledger, options: argparse.Namespace) -> list[str]:
    return [item.name for item in ledger.pipelines()] if options.pipeline is None else [options.pipeline]


def _number(of: str, least: int, most: int) -> Callable[[str], int]:
    """Reads a whole number within bounds; `of` says for errors what is counted."""

    def read(text: str) -> int:
        if text.isascii() and text.isdigit() and len(text) <= len(str(most)) and least <= int(text) <= most:
            return int(text)
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is no number of {of} from {least} to {most}")

    return read


def _as_dict(transaction: Transaction) -> dict[str, Any]:
    """Everything but the manifest, which lists every file."""
    fields = asdict(transaction)
    del fields["manifest"]
    return fields


def _row(item: Transaction) -> tuple[object, ...]:
    run = f"{item.dag_id}/{item.run_id}"
    return (
        item.id,
        item.pipeline,
        item.kind.value,
        item.state.value,
        item.instant,
        item.rows,
        item.changed,
        run,
        item.error,
    )
