"""`slshudi status`, `slshudi metrics` and `slshudi lag`: how pipelines stand."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.cli.common import Commands, add_json, add_pipeline, print_json, print_table, work_of

if TYPE_CHECKING:
    from airflow_provider_slshudi.views.standing import PipelineView


def add_to(commands: Commands) -> None:
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
    from airflow_provider_slshudi import settings
    from airflow_provider_slshudi.exceptions import ConfigError
    from airflow_provider_slshudi.hooks.ledger import LedgerHook
    from airflow_provider_slshudi.views.standing import Need, pipelines

    found = pipelines(LedgerHook(settings.ledger_conn_id()).ledger_as_it_is(), options.pipelines or None)
    known = {view.name for view in found}
    for name in options.pipelines:
        if name not in known:
            raise ConfigError(
                f"the ledger knows no pipeline {name!r}: a pipeline is known from its first run on",
                source="status",
                field="pipelines",
                value=name,
            )
    if options.json:
        print_json(options.out, [_as_dict(view) for view in found])
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
        print_table(options.out, "Pipelines", columns, [_row(view) for view in found])
        for view in found:
            for trouble in view.troubles:
                print(f"{view.name}: {trouble.dag_id} at {trouble.step}: {trouble.message}", file=options.out)
    return 3 if any(view.need is Need.LOOK for view in found) else 0


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
    from airflow_provider_slshudi import settings
    from airflow_provider_slshudi.hooks.ledger import LedgerHook
    from airflow_provider_slshudi.views.metrics import exposition, metrics

    options.out.write(exposition(metrics(LedgerHook(settings.ledger_conn_id()).ledger_as_it_is())))
    return 0


def _lag(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.protocol.sighting import behind
    from airflow_provider_slshudi.views.words import count, size, span

    work = work_of(options.pipeline)
    found = behind(work)
    if options.json:
        print_json(options.out, {"pipeline": work.pipeline.name, "shards": [asdict(item) for item in found]})
        return 0
    rows = [
        (item.shard, item.covered_to, item.end, count(item.unread), size(item.unread_bytes), span(item.seconds))
        for item in found
    ]
    columns = ("shard", "read to", "end", "unread log groups", "unread (estimate)", "behind")
    print_table(options.out, f"{work.pipeline.name}, as the service says now", columns, rows)
    return 0
