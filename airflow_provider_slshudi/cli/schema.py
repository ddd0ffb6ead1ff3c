"""`slshudi schema diff`, `slshudi schema suggest` and `slshudi schema unnamed`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from airflow_provider_slshudi.cli.common import (
    Commands,
    add_json,
    add_pipeline,
    print_json,
    print_table,
    service_of,
    service_of_source,
)
from airflow_provider_slshudi.exceptions import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_slshudi.config.pipeline import Pipeline
    from airflow_provider_slshudi.rows.suggest import Suggestion
    from airflow_provider_slshudi.sls.service import LogService

_GROUPS = 100


def add_to(commands: Commands) -> None:
    """Adds the commands."""
    schema = commands.add_parser("schema", help="columns of tables and files").add_subparsers(
        required=True, metavar="COMMAND"
    )
    diff = schema.add_parser("diff", help="how the table's columns and the file's differ; exit code 1: plan refuses")
    add_pipeline(diff)
    diff.set_defaults(run=_diff)

    suggest = schema.add_parser(
        "suggest",
        help="columns for the keys of sampled logs",
        description="With a pipeline: the keys that none of its columns names. With --project and --logstore: the file "
        "of a new pipeline. Looks at the oldest and the newest log groups of up to eight shards; changes nothing.",
    )
    add_pipeline(suggest, nargs="?")
    suggest.add_argument("--connection", default="sls_default", help="with --project: the connection (sls_default)")
    suggest.add_argument("--project")
    suggest.add_argument("--logstore")
    suggest.add_argument(
        "--groups", type=_groups, default=_GROUPS, help=f"log groups of each end of a shard (default: {_GROUPS})"
    )
    suggest.set_defaults(run=_suggest)

    unnamed = schema.add_parser(
        "unnamed",
        help="keys of logs that no column names, as batches saw them",
        description="Reads the ledger alone. Batches look at some of their logs: `suggest` asks the service instead.",
    )
    add_pipeline(unnamed)
    unnamed.set_defaults(run=_unnamed)
    for command in (diff, suggest, unnamed):
        add_json(command)


def _groups(text: str) -> int:
    from airflow_provider_slshudi.sls.service import PULL_GROUPS

    if not text.isdigit() or not 1 <= int(text) <= PULL_GROUPS:
        raise argparse.ArgumentTypeError(f"{text!r}: expected 1 to {PULL_GROUPS}")
    return int(text)


def _diff(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi import settings
    from airflow_provider_slshudi.hudi.evolution import Kind
    from airflow_provider_slshudi.transaction.columns import changes

    pipeline = settings.pipeline(options.pipeline)
    table = pipeline.table.path
    differences = changes(pipeline)
    refused = any(change.kind is Kind.REFUSED for change in differences or ())
    if options.json:
        entries = [{**asdict(change), "kind": change.kind.value} for change in differences or ()]
        about = {"pipeline": pipeline.name, "table": table, "exists": differences is not None}
        print_json(options.out, {**about, "changes": entries})
        return int(refused)
    if differences is None:
        print(f"{table}: no table yet; the first batch makes it with the file's columns", file=options.out)
        return 0
    print_table(
        options.out,
        f"{pipeline.name}: what the next batch changes in {table}",
        ("column", "in the table", "in the file", "", "what becomes of it"),
        [(change.column, change.there, change.wanted, change.kind.value, change.note) for change in differences],
    )
    return int(refused)


def _suggest(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.rows.suggest import suggest
    from airflow_provider_slshudi.sls.columns import META
    from airflow_provider_slshudi.sls.sample import sample

    pipeline, service = _source(options)
    logs = sample(service, service.shards(), options.groups).logs
    taken: set[str] = set()
    names: list[str] = []
    if pipeline is not None and pipeline.masks:
        from airflow_provider_slshudi.shaping.masks import HashKey, Masks, MaskSpec
        from airflow_provider_slshudi.system.secrets import Secret

        specs = [MaskSpec.of(mask) for mask in pipeline.masks]
        logs = Masks(specs, HashKey(pipeline.mask_key or "", Secret("0" * 32))).masked(logs)
    if pipeline is not None:
        from airflow_provider_slshudi.hudi.schema import table_columns

        taken = {*META.names, *(key for column in pipeline.columns for key in pipeline.keys_of(column))}
        names = [name for name, _ in table_columns(pipeline)]
    suggestions = suggest(logs, taken, names)
    if options.json:
        keys = [{**asdict(item), "column": item.column()} for item in suggestions]
        source = {"project": service.project, "logstore": service.logstore}
        report = {"pipeline": pipeline and pipeline.name, **source, "logs": logs.num_rows, "keys": keys}
        print_json(options.out, report)
    else:
        print(_yaml(pipeline, options, logs, suggestions), end="", file=options.out)
    return 0


def _unnamed(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi import settings
    from airflow_provider_slshudi.hooks.ledger import LedgerHook
    from airflow_provider_slshudi.views.findings import unnamed

    pipeline = settings.pipeline(options.pipeline)
    ledger = LedgerHook(settings.ledger_conn_id()).ledger_as_it_is()
    named = pipeline.named_keys
    keys = [replace(key, kept_in=named.kept_in(key.key)) for key in unnamed(ledger, pipeline.name, named)]
    if options.json:
        print_json(options.out, {"pipeline": pipeline.name, "keys": [asdict(key) for key in keys]})
        return 0
    print_table(
        options.out,
        f"{pipeline.name}: keys that no column names",
        ("key", "kept in", "in logs", "of those looked at", "first seen", "first batch", "last seen", "examples"),
        [
            (
                *(key.key, key.kept_in or "dropped", key.logs, key.looked, key.first, key.transaction, key.last),
                ", ".join(map(repr, key.examples)),
            )
            for key in keys
        ],
    )
    return 0


def _source(options: argparse.Namespace) -> tuple[Pipeline | None, LogService]:
    from airflow_provider_slshudi import settings

    if (options.pipeline is None) == (options.project is None or options.logstore is None):
        raise ConfigError(
            "schema suggest: give a pipeline, or --project and --logstore", source="slshudi schema suggest"
        )
    if options.pipeline is None:
        return None, service_of(options.connection, options.project, options.logstore)
    pipeline = settings.pipeline(options.pipeline)
    return pipeline, service_of_source(pipeline.source)


def _yaml(pipeline: Pipeline | None, options: argparse.Namespace, logs: pa.Table, found: Sequence[Suggestion]) -> str:
    """A pipeline's file, or its further columns, with a comment on each key."""
    from airflow_provider_slshudi.cli import draft
    from airflow_provider_slshudi.rows.suggest import left_out

    looked = f"{logs.num_rows} logs looked at"
    if pipeline is not None:
        if not found:
            return f"# {looked}: no key that no column of {pipeline.name} names\n"
        head = f"# {looked}; keys that no column of {pipeline.name} names, to be added to its"
        return "\n".join([head, "columns:", *draft.columns(found), ""])
    name = draft.name_of(options.logstore)
    source = {"connection": options.connection, "project": options.project, "logstore": options.logstore}
    table = {"path": f"file:///var/lib/slshudi/lake/{name}", "name": name}
    looked += "; change the table's path, and what a column is called"
    return draft.pipeline(name, source, table, found, looked, left_out(logs, found))
