"""`slshudi init`."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.cli.choices import add_options
from airflow_provider_slshudi.cli.common import Commands, add_json, print_json, print_table, run_of_command
from airflow_provider_slshudi.cli.prompts import say
from airflow_provider_slshudi.exceptions import ConfigError, SlsHudiError
from airflow_provider_slshudi.views.words import NO_ALERTS, no_alerts

if TYPE_CHECKING:
    from airflow_provider_slshudi.cli.notifiers import Alerts
    from airflow_provider_slshudi.config.pipeline import Pipeline
    from airflow_provider_slshudi.ledger.ledger import Ledger
    from airflow_provider_slshudi.planning.ranges import Range
    from airflow_provider_slshudi.rows.suggest import Suggestion
    from airflow_provider_slshudi.sls.sample import Sample
    from airflow_provider_slshudi.sls.service import LogService

_GROUPS = 100


def add_to(commands: Commands) -> None:
    """Adds the command."""
    command = commands.add_parser(
        "init",
        help="a new pipeline from a logstore: asks, samples, writes its file and DAGs, shows the first plan",
        description="Samples the logstore, makes columns of its keys, writes the pipeline's file and a DAG file, and "
        "shows what the first batch would read. On a terminal it asks for what no option says; elsewhere a question "
        "without a default needs its option. Overwrites nothing, and starts nothing.",
    )
    command.add_argument("name", help="the pipeline's name: letters, digits, _, . and -")
    add_options(command)
    add_json(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    name = _name(options.name)
    say(f"pipeline {name}: looking at Airflow's settings and connections")  # importing Airflow takes seconds
    from airflow_provider_slshudi import settings
    from airflow_provider_slshudi.cli import choices, draft, prompts
    from airflow_provider_slshudi.config.load import parse_pipeline
    from airflow_provider_slshudi.rows.suggest import left_out, suggest

    dag_folders = settings.dag_folders()
    folder = choices.folder(options, dag_folders)
    file, dag_file = settings.place_of_new(name, folder), folder / f"{name}_dags.py"
    prompts.require_free(dag_file)
    connection, service = choices.logstore(options, name)
    sampled = _sample(service)
    suggestions = suggest(sampled.logs)
    more = left_out(sampled.logs, suggestions)
    if not options.json:
        _show_columns(options, suggestions, more)

    place = {"connection": connection, "project": service.project, "logstore": service.logstore}
    types = {item.name: item.type for item in suggestions if item.share >= draft.RARE}
    table = choices.table(options, name, types or {draft.ONLY_TIME["name"]: draft.ONLY_TIME["type"]})
    version, mirror = choices.engines(options, name, table)
    looked = f"{sampled.logs.num_rows} logs looked at"
    source = {**place, "start": choices.start(options)}
    alerts = choices.alerts(options)
    text = draft.pipeline(name, source, table | version, suggestions, looked, more, mirror)
    pipeline = parse_pipeline(text, source=str(file))
    ledger = _known_ledger(pipeline)
    prompts.write_new({file: text, dag_file: draft.dag_file(name, alerts)})

    say("both files are written; asking what the first batch would read")
    summary = {"pipeline": name, "file": str(file), "dag_file": str(dag_file), "logs": sampled.logs.num_rows}
    in_dag_folder = any(folder.is_relative_to(each.absolute()) for each in dag_folders)
    by_name = name if in_dag_folder or settings.pipelines_folder() else str(file)
    steps = _next(name, by_name, None if in_dag_folder else folder, alerts)
    try:
        ranges = _first_plan(pipeline, service, ledger)
    except SlsHudiError as error:
        _tell(options, {**summary, "plan": None}, steps)
        raise ConfigError(
            "both files are written, but what the first batch would read is not known: `slshudi plan "
            f"{shlex.quote(by_name)}` asks again. {error}",
            source=str(file),
        ) from error
    if not options.json:
        _show_plan(options, pipeline, ranges, sampled)
    _tell(options, {**summary, "plan": [asdict(item) for item in ranges]}, steps)
    return 0


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", text) or text.endswith((".yaml", ".yml")) or not text.strip("."):
        raise ConfigError(
            f"{text!r} is no name of a pipeline: expected letters, digits, _, . and -, at most 100, without .yaml",
            source="slshudi init",
            field="name",
            value=text,
        )
    return text


def _sample(service: LogService) -> Sample:
    from airflow_provider_slshudi.sls.sample import MOST_SHARDS, sample
    from airflow_provider_slshudi.views.words import count, size

    place = f"{service.project}/{service.logstore}"
    say(f"asking {service.connection.endpoint} for the shards of {place}")
    shards = service.shards()
    say(f"{len(shards)} shards; looking at the oldest and the newest logs of {min(len(shards), MOST_SHARDS)}")
    sampled = sample(service, shards, _GROUPS, lambda shard, groups: say(f"  shard {shard}: {groups} log groups"))
    if sampled.logs.num_rows:
        say(f"{count(sampled.logs.num_rows)} logs to make columns of, from {size(sampled.bytes)}")
    else:
        say(
            f"{place} holds no logs: the file gets a column for their time, and one for all keys. Once there are "
            "logs, `slshudi schema suggest` makes columns of them"
        )
    return sampled


def _known_ledger(pipeline: Pipeline) -> Ledger | None:
    """The ledger, if there is one that can be read: before the first run of all pipelines it has no tables.

    Raises:
        PipelineConflict: it knows the table, or the name, from another pipeline that wrote something.
    """
    from airflow_provider_slshudi import settings
    from airflow_provider_slshudi.exceptions import LedgerEmpty, PipelineConflict
    from airflow_provider_slshudi.hooks.ledger import LedgerHook

    name, source, table = pipeline.name, pipeline.source.identity, pipeline.table.path
    try:
        ledger = LedgerHook(settings.ledger_conn_id()).ledger_as_it_is()
        same = (entry for entry in ledger.pipelines() if entry.name == name or entry.table == table)
        # One that wrote nothing makes room at the first run.
        if any(ledger.has_written(entry.name) for entry in same):
            ledger.require(name, source, table)
    except PipelineConflict:
        raise
    except LedgerEmpty:
        say("the ledger is new: the first run of a pipeline makes its tables")
        return None
    except SlsHudiError as error:
        say(f"whether the ledger knows this name or table is not known: {error}")
        return None
    return ledger


def _first_plan(pipeline: Pipeline, service: LogService, ledger: Ledger | None) -> list[Range]:
    """What the first batch would read; changes nothing."""
    from airflow_provider_slshudi.hooks.spark import SparkLauncher
    from airflow_provider_slshudi.transaction.context import Work
    from airflow_provider_slshudi.transaction.plan import preview

    with _empty_ledger() as empty:
        launcher = SparkLauncher(pipeline.spark.connection)
        return preview(Work(pipeline, ledger or empty, launcher, lambda: service, run_of_command()))


@contextmanager
def _empty_ledger() -> Iterator[Ledger]:
    """A ledger that knows nothing, and is thrown away."""
    from airflow_provider_slshudi.ledger.engine import migrate, open_engine
    from airflow_provider_slshudi.ledger.ledger import Ledger

    with TemporaryDirectory(prefix="slshudi-init-") as folder:
        engine = open_engine(f"sqlite:///{folder}/ledger.db")
        try:
            migrate(engine)
            yield Ledger(engine)
        finally:
            engine.dispose()


def _show_columns(options: argparse.Namespace, found: Sequence[Suggestion], more: int) -> None:
    from airflow_provider_slshudi.cli.draft import readable

    rows = [
        (
            *(item.name, item.type, item.format, readable(item.key), f"{item.share:.1%}"),
            *(readable(item.example), readable(item.note)),
        )
        for item in found
    ]
    if rows:
        print_table(options.out, "Columns", ("column", "type", "format", "key", "in logs", "like", ""), rows)
    if more:
        print(f"{more} more keys, of fewer logs or such that no column can name, go to `rest_column`", file=options.out)


def _show_plan(options: argparse.Namespace, pipeline: Pipeline, ranges: Sequence[Range], sampled: Sample) -> None:
    from airflow_provider_slshudi.cli import reports
    from airflow_provider_slshudi.views.words import count, size

    reports.show(options.out, f"First batch of {pipeline.name}", ranges, pipeline.source)
    groups = sum(map(len, ranges))
    if groups and sampled.groups:
        raw = size(groups * sampled.bytes / sampled.groups)
        print(f"{count(groups)} log groups, by the sample about {raw} raw", file=options.out)
    elif pipeline.source.start == "end":
        print("it begins where the shards end when it first runs", file=options.out)


def _next(name: str, by_name: str, elsewhere: Path | None, alerts: Alerts | None) -> list[str]:
    """The commands that come next.

    Args:
        name: the pipeline's.
        by_name: how commands name it.
        elsewhere: where the DAG file is, if Airflow does not look there.
        alerts: whom Airflow tells of failures.
    """
    lines = [] if alerts is None or alerts.has_connection() else [alerts.add_connection]
    lines.append(f"slshudi doctor {shlex.quote(by_name)}")
    if alerts is None:
        lines.append(f"# {NO_ALERTS}: {no_alerts(name)}")
    if elsewhere is not None:
        lines.append(
            f"# Airflow on this machine does not look into {elsewhere}: bring both files to where its DAGs are"
        )
    lines.append("airflow dags reserialize # or wait until the DAG processor has found the file")
    roles = ("tail", "operations", *(["watch"] if alerts is not None else []))
    return [*lines, *(f"airflow dags unpause {name}_{role}" for role in roles)]


def _tell(options: argparse.Namespace, told: dict[str, Any], steps: Sequence[str]) -> None:
    """Prints what was written and what comes next."""
    if options.json:
        print_json(options.out, {**told, "next": steps})
        return
    for lines in (("written", told["file"], told["dag_file"]), ("next", *steps)):
        print(f"{lines[0]}:", *lines[1:], sep="\n  ", file=options.out)
