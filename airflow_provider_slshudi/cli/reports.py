"""`slshudi plan`, `status` and `verify`: what is next, how pipelines stand, and proof."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

from airflow_provider_slshudi.cli.common import (
    Commands,
    add_json,
    add_pipeline,
    print_json,
    print_table,
    require_known,
    tell_unread,
    work_of,
)

if TYPE_CHECKING:
    from airflow_provider_slshudi.config.sources import Source
    from airflow_provider_slshudi.planning.ranges import Range
    from airflow_provider_slshudi.services.verification import Proof
    from airflow_provider_slshudi.views.standing import PipelineView


def add_plan(commands: Commands) -> None:
    """Adds the command."""
    command = commands.add_parser("plan", help="what the next batch would read; changes nothing")
    add_pipeline(command)
    add_json(command)
    command.set_defaults(run=_plan)


def _plan(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.transaction.plan import preview

    work = work_of(options.pipeline)
    ranges = preview(work)
    if options.json:
        print_json(options.out, {"pipeline": work.pipeline.name, "ranges": [asdict(item) for item in ranges]})
    else:
        show(options.out, f"Next batch of {work.pipeline.name}", ranges, work.pipeline.source)
    return 0


def show(out: TextIO, title: str, ranges: Sequence[Range], source: Source) -> None:
    """Prints ranges that a batch would read.

    Args:
        out: where.
        title: stands above them.
        ranges: the ranges.
        source: the pipeline's, by which shards are named.
    """
    from airflow_provider_slshudi.config.sources import full_name

    rows = [
        (full_name(source.identity, item.shard), item.begin, item.end, len(item), "gap" if item.gap else "")
        for item in ranges
    ]
    print_table(out, title, ("shard", "begin", "end", "log groups", ""), rows)


def add_status(commands: Commands) -> None:
    """Adds the commands."""
    status = commands.add_parser("status", help="how all pipelines stand; what a person should look at comes first")
    status.add_argument("pipelines", nargs="*", metavar="NAME", help="only these, by their names in the ledger")
    status.set_defaults(run=_status)
    lag = commands.add_parser("lag", help="asks the service how far a pipeline is behind, shard by shard")
    add_pipeline(lag)
    lag.set_defaults(run=_lag)
    for command in (status, lag):
        add_json(command)
    figures = commands.add_parser("metrics", help="all pipelines' figures in Prometheus' text format")
    figures.set_defaults(run=_metrics)


def _status(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.hooks.ledger import each_ledger
    from airflow_provider_slshudi.views.standing import Need, by_need, pipelines

    looks, errors = each_ledger(lambda ledger: pipelines(ledger, options.pipelines or None))
    views = by_need(view for look in looks for view in look)
    tell_unread(errors)
    require_known(options.pipelines, {view.name for view in views}, errors, "status")
    if options.json:
        print_json(options.out, [_as_dict(view) for view in views])
    else:
        columns = (
            "pipeline",
            "needs",
            "why",
            "behind",
            "unread",
            "expires in",
            "in",
            "out",
            "newest row",
            "last batch",
        )
        print_table(options.out, "Pipelines", columns, [_row(view) for view in views])
        for view in views:
            for trouble in view.troubles:
                print(f"{view.name}: {trouble.dag_id} at {trouble.step}: {trouble.message}", file=options.out)
            if (failed := view.failed_backfill) is not None:
                request = f"{view.name}: the backfill that {failed.who} asked for at {failed.at:%Y-%m-%d %H:%M} UTC"
                print(f"{request} ({failed.reason}) failed: {failed.result}", file=options.out)
        if not views and not errors and not options.pipelines:
            print("No pipeline has run yet: its first run makes the ledger's tables.", file=options.out)
    return 3 if errors or any(view.need is Need.LOOK for view in views) else 0


def _row(view: PipelineView) -> tuple[object, ...]:
    from airflow_provider_slshudi.views.words import ago, behind, expires, rate, size

    lag, now = view.lag, view.now
    committed = None if view.committed is None else view.committed.changed
    return (
        *(view.name, view.need.value, view.why, behind(lag), size(lag.bytes if lag else None), expires(lag)),
        *(rate(view.rates.came), rate(view.rates.committed), ago(view.fresh, now), ago(committed, now)),
    )


def _as_dict(view: PipelineView) -> dict[str, Any]:
    fields = asdict(view)
    fields["need"] = view.need.value
    for transaction in (fields["committed"], *fields["live"]):
        if transaction is not None:
            del transaction["manifest"]
    return fields


def _metrics(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.hooks.ledger import each_ledger
    from airflow_provider_slshudi.views.metrics import exposition, metrics, of_one_ledger

    looks, errors = each_ledger(metrics)
    options.out.write(exposition(of_one_ledger(looks)))
    tell_unread(errors)
    return 3 if errors else 0


def _lag(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.config.sources import full_name
    from airflow_provider_slshudi.transaction.backlog import behind
    from airflow_provider_slshudi.views.words import count, size, span

    work = work_of(options.pipeline)
    shards, source = behind(work), work.pipeline.source.identity
    if options.json:
        print_json(options.out, {"pipeline": work.pipeline.name, "shards": [asdict(item) for item in shards]})
        return 0
    rows = [
        (
            *(full_name(source, item.shard), item.covered_to, item.end),
            *(count(item.unread), size(item.unread_bytes), span(item.seconds)),
        )
        for item in shards
    ]
    columns = ("shard", "read to", "end", "unread log groups", "unread (estimate)", "behind")
    print_table(options.out, f"{work.pipeline.name}, as the service says now", columns, rows)
    return 0


def add_verify(commands: Commands) -> None:
    """Adds the command."""
    command = commands.add_parser("verify", help="the table's rows against the ledger, and against the service")
    add_pipeline(command)
    command.add_argument("--source", action="store_true", help="read again, too, what the log service still holds")
    add_json(command)
    command.set_defaults(run=_verify)


def _verify(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.services.verification import verify

    work = work_of(options.pipeline)
    proof = verify(work, options.source)
    if options.json:
        print_json(options.out, {"pipeline": work.pipeline.name, **proof.to_dict()})
    else:
        _print(options.out, work.pipeline.name, proof)
    return 0 if proof.ok else 1


def _print(out: TextIO, name: str, proof: Proof) -> None:
    """Prints the totals, and the wrong ranges."""
    title = f"{name} as of {proof.as_of or 'no commit'}: {'every log once' if proof.ok else 'NOT every log once'}"
    totals = proof.totals.to_dict()
    rows: list[tuple[object, ...]] = [
        (item.shard, *(item.counts.to_dict().get(count) for count in totals)) for item in proof.shards
    ]
    print_table(out, title, ("shard", *totals), [*rows, ("all", *totals.values())])
    if proof.wrong:
        print_table(
            out,
            "Ranges that are not as they were recorded",
            ("shard", "begin", "end", "transaction", "instant", *totals, "for example"),
            [
                (
                    *(item.shard, item.begin, item.end, item.transaction, item.instant),
                    *(item.counts.to_dict().get(count) for count in totals),
                    ", ".join(f"{kind} {place}" for kind, place in item.examples.items()),
                )
                for item in proof.wrong
            ],
        )
    for item in proof.shards:
        if item.outside:
            print(
                f"shard {item.shard}: {item.outside} rows outside of all that was recorded, like {item.example}",
                file=out,
            )
    for complaint in proof.ledger_complaints():
        print(f"the ledger: {complaint}", file=out)
    if proof.unreadable:
        print(
            f"{proof.unreadable} rows have a key that names no shard, cursor and index, like "
            f"{proof.unreadable_example!r}",
            file=out,
        )
    if proof.totals.not_comparable:
        print(
            f"not comparable: {proof.totals.not_comparable} log groups, which the service no longer holds; nothing is "
            "said of their logs but what the ledger recorded",
            file=out,
        )
