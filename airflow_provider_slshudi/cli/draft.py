"""The text of a new pipeline's file and of its DAG file: each value of a log is one line there and can be printed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import yaml

from airflow_provider_slshudi.rows.suggest import LOG_TIME, free_name

if TYPE_CHECKING:
    from airflow_provider_slshudi.cli.notifiers import Alerts
    from airflow_provider_slshudi.rows.suggest import Suggestion

RARE = 0.01
"""Keys in a smaller share of the logs get no column, only a line to uncomment."""
ONLY_TIME = {"name": "log_time", "type": "timestamp", "format": "seconds", "key": LOG_TIME}
"""The column that every log fills, for a file whose logs are not known yet."""


class _Dumper(yaml.SafeDumper):
    pass


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    # Other styles would put a line break of the text into the file as one.
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"')


_Dumper.add_representer(str, _text)


def flow(value: Any) -> str:
    """A value as YAML in one line; letters of any script stay readable, what cannot be printed is escaped."""

    inline = isinstance(value, (dict, list))

    def dumped(as_it_is: bool) -> str:
        options: dict[str, Any] = {"default_flow_style": inline, "sort_keys": False, "width": float("inf")}
        text: str = yaml.dump({"_": value}, Dumper=_Dumper, allow_unicode=as_it_is, **options).strip()
        return text[len("{_: ") : -len("}")] if inline else text[len("_: ") :]

    line = dumped(as_it_is=True)
    return line if line.isprintable() else dumped(as_it_is=False)


def columns(found: Sequence[Suggestion], rare: float = 0.0) -> list[str]:
    """The lines of columns, each with what was seen; commented out where a smaller share of logs than `rare` has it."""
    return [f"  {'# ' if item.share < rare else ''}- {flow(item.column())} # {seen(item)}" for item in found]


def seen(item: Suggestion) -> str:
    """What was seen of a key, in one line."""
    share = "in every log" if item.share == 1 else f"in {item.share:.1%} of the logs"
    example = repr(item.example) if item.type != "binary" else "bytes"
    return f"{share}, like {example}" + (f"; {readable(item.note)}" if item.note else "")


def readable(text: str) -> str:
    """The text in one line that can be printed, also of a log with line breaks."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def name_of(text: str) -> str:
    """A table's name made of a pipeline's or a logstore's."""
    name = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in text.lower())
    return name if name[0].isalpha() else f"t_{name}"


def pipeline(
    name: str,
    source: dict[str, Any],
    table: dict[str, Any],
    found: Sequence[Suggestion],
    looked: str,
    more: int = 0,
    mirror: dict[str, Any] | None = None,
) -> str:
    """A pipeline file.

    Args:
        name: the pipeline's.
        source, table, mirror: these fields, as the file has them.
        found: the columns.
        looked: what they were made of, for the first line.
        more: how many keys have no column.
    """
    used = {item.name for item in found} | {ONLY_TIME["name"]}
    table = dict(table)
    if (table.get("partition") or {}).get("by") == "event_time":
        day = free_name("event_date", used)
        table["partition"] = {**table["partition"], **({"name": day} if day != "event_date" else {})}
        used.add(day)
    also = f"; {more} keys have none" if more else ""
    lines = [
        f"# {looked}",
        "# All fields: docs/pipeline.md. Once something was written, name, source and table stay as they are.",
        f"name: {flow(name)}",
        'schedule: 5m # a pause between runs, or "@continuous" in quotes, or a cron expression of five fields',
        f"source: {flow(source)}",
        "table:",
        *(f"  {field}: {flow(value)}{_COMMENTS.get(field, '')}" for field, value in table.items()),
        *([f"mirror: {flow(mirror)} # for engines that read no Hudi table"] if mirror else []),
        f"columns: # each type takes all values that were seen{also}",
        *(columns(found, RARE) if found else [f"  - {flow(ONLY_TIME)}"]),
        f"rest_column: {free_name('rest', used)} # keeps every key that no column names",
        "misfits: nullify # a value that does not fit its column becomes NULL and is counted; or fail, or quarantine",
    ]
    return "\n".join(lines) + "\n"


_COMMENTS = {
    "version": " # Hudi's, the newest that all engines read which were named",
    "upsert": " # a log without a value for key or ordering field fails its batch; missing_key: drop leaves it out",
}


def dag_file(name: str, alerts: Alerts | None = None) -> str:
    """A DAG file with a pipeline's DAGs; with a watch where `alerts` says whom Airflow tells of failures."""
    dags = f'tail = tail_dag("{name}")\noperations = operations_dag("{name}")\n'
    about = f'"""The DAGs of pipeline {name}: its file is {name}.yaml."""'
    imported = "from airflow_provider_slshudi import operations_dag, tail_dag"
    if alerts is None:
        return f"{about}\n\n{imported}\n\n{dags}"
    return (
        f"{about}\n\n{alerts.imports}\n\n{imported}, watch_dag\n\n"
        f"# The watch sees failures of both, every 15 minutes.\nalerts = {alerts.notifier}\n\n{dags}"
        f'watch = watch_dag("{name}", default_args={{"on_failure_callback": [alerts]}})\n'
    )
