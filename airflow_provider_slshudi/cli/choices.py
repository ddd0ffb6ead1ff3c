"""What `slshudi init` has to know: each by its option, by a person's answer, or by looking."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.cli.common import service_of
from airflow_provider_slshudi.cli.engines import ENGINES, USUAL
from airflow_provider_slshudi.cli.notifiers import ALERTS, Alerts, alerts_of
from airflow_provider_slshudi.cli.prompts import answer, of_type, on_terminal, say
from airflow_provider_slshudi.exceptions import ConfigError, SourceRefused

if TYPE_CHECKING:
    from airflow_provider_slshudi.sls.service import LogService

_MOST_LISTED = 30
_NONE = "none"
_LOG_TIME = "log_time"
_BUCKETS = "16"


def add_options(command: argparse.ArgumentParser) -> None:
    """Adds an option for each of them."""
    for option, described in (
        ("--connection", "Airflow's, of type sls (default: the only one, or sls_default)"),
        ("--project", "default: the one that the connection names for its test"),
        ("--logstore", "default: the one that the connection names for its test"),
        ("--path", "the table's, file:, s3a:, oss: or hdfs://... (default: beside the tables of other pipelines)"),
        ("--start", "begin (default), end, or a receive time with its zone"),
        ("--key", "columns, with commas between, whose rows logs upsert; or none (default: append)"),
        ("--ordering", "with --key: the column of which the greater value wins, or none (default: the logs' time)"),
        ("--buckets", f"with --key: file groups of a partition, for good (default: {_BUCKETS})"),
        ("--partition", "a column: of a time, for a folder a day, or of a text, whole number or date, for one a value; "
         "or none (default: the logs' time; with --key none)"),
        ("--timezone", "of the partition's days, like Asia/Shanghai (default: Airflow's default_timezone)"),
        ("--alerts", f"whom Airflow tells of failures: {ALERTS} (default: none)"),
        ("--engines", f"that will query, with commas between: {', '.join(ENGINES)} (default: {USUAL}, with Hudi 1.1 or "
         "later)"),
        ("--catalog", "of an Iceberg mirror, where an engine needs one: Airflow's connection of type slshudi_iceberg"),
        ("--folder", "of the DAG file (default: Airflow's folder of DAGs)"),
    ):  # fmt: skip
        command.add_argument(option, help=described)


def folder(options: argparse.Namespace, known: Sequence[Path]) -> Path:
    """Where the DAG file goes; `known` are the folders where Airflow looks."""
    if options.folder is None and len(known) == 1:
        return known[0].absolute()

    def check(text: str) -> Path:
        path = Path(text).expanduser().absolute()
        if not path.is_dir():
            raise ValueError("there is no such folder")
        return path

    question = f"Folder of the DAG file; Airflow looks into {_listed(known) or 'none on this machine'}"
    return answer("--folder", question, options.folder, None, check)


def logstore(options: argparse.Namespace, name: str) -> tuple[str, LogService]:
    """The connection's id, and a client of the logstore: that of the pipeline's name, if the project has it."""
    from airflow_provider_slshudi.hooks.connections import find_connection
    from airflow_provider_slshudi.hooks.sls import SlsHook

    connection = _connection("--connection", options.connection, SlsHook.conn_type, SlsHook.default_conn_name)
    extra = find_connection(connection, SlsHook.conn_type).extra_dejson
    tested = {field: str(extra.get(field) or "") for field in ("project", "logstore")}
    project = answer("--project", "Project", options.project, tested["project"], str)
    usual = tested["logstore"] if project == tested["project"] else ""
    is_asked = options.logstore is None and (on_terminal() or not usual)
    logstores = _logstores(connection, project) if is_asked else []
    named = [each for each in logstores if _letters(each) == _letters(name)]
    if len(named) == 1:
        usual = named[0]
    elif logstores and usual not in logstores:
        usual = logstores[0] if len(logstores) == 1 else ""

    def check(text: str) -> str:
        if logstores and text not in logstores:
            raise ValueError(f"the project has no such logstore: {_listed(logstores)}")
        return text

    return connection, service_of(connection, project, answer("--logstore", "Logstore", options.logstore, usual, check))


def _letters(name: str) -> str:
    """A name as logstores and pipelines spell it alike: a logstore's has no capitals, a pipeline's may have dots."""
    return "".join(letter if letter.isalnum() else "-" for letter in name.lower())


def start(options: argparse.Namespace) -> str | int:
    """Where the pipeline begins, as its file says it."""

    def check(text: str) -> str | int:
        from pydantic import AwareDatetime

        if text in ("begin", "end"):
            return text
        with suppress(ValueError):
            if (seconds := int(of_type(AwareDatetime)(text).timestamp())) > 0:
                return seconds
        raise ValueError("expected begin, end, or a time with its zone, like 2026-01-31T08:00:00+08:00")

    return answer(
        "--start", "Begin at the oldest log (begin), at new ones (end), or a time", options.start, "begin", check
    )


def table(options: argparse.Namespace, name: str, types: Mapping[str, str]) -> dict[str, Any]:
    """The file's field `table`; `types` are those of the columns by their names."""
    from airflow_provider_slshudi.cli.draft import name_of
    from airflow_provider_slshudi.config.values import Uri

    path = answer("--path", "Table's path (file:, s3a:, oss: or hdfs://...)", options.path, _beside(name), of_type(Uri))
    upsert = _upsert(options, types)

    def check(text: str) -> dict[str, str] | None:
        if text == _NONE:
            return None
        by_value = ("string", "int", "bigint", "date")
        column = _column(text, types, ("timestamp", *by_value))
        return {"by": "field" if types[column] in by_value else "event_time", "column": column}

    # A key's row must stay in its partition, and the times of its logs differ.
    usual = _NONE if upsert else _LOG_TIME
    partition = answer("--partition", "Partition by column, or none", options.partition, usual, check)
    if partition is not None and partition["by"] == "event_time":
        partition["timezone"] = _timezone(options)
    elif options.timezone is not None:
        raise ConfigError("--timezone is for partitions by a time", source="slshudi init", field="timezone")
    fields = {"path": path, "name": name_of(name), "partition": partition, "upsert": upsert}
    return {field: value for field, value in fields.items() if value is not None}


def _timezone(options: argparse.Namespace) -> str:
    from airflow.settings import TIMEZONE

    from airflow_provider_slshudi.config.values import Zone

    usual = str(getattr(TIMEZONE, "name", "UTC"))  # an offset has no name that a file could have
    return str(answer("--timezone", "Time zone of the partition's days", options.timezone, usual, of_type(Zone)))


def alerts(options: argparse.Namespace) -> Alerts | None:
    """Whom Airflow tells of failures; None: no person.

    Raises:
        ConfigError: it is none of these, or the provider that tells is not installed.
    """

    def check(text: str) -> Alerts | None:
        return None if text == _NONE else alerts_of(text)

    return answer("--alerts", f"Who is told of failures: {ALERTS}", options.alerts, _NONE, check)


def engines(options: argparse.Namespace, name: str, table: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, Any]]:
    """What the file's `table` says of Hudi's version, and the file's `mirror`; empty where the usual table will do.

    `table` is that field as it is so far.
    """
    from airflow_provider_slshudi.cli.draft import name_of
    from airflow_provider_slshudi.cli.engines import FORMATS, Choice, chosen, mirror
    from airflow_provider_slshudi.config.table import DELTA_SCHEMES
    from airflow_provider_slshudi.hooks.connections import find_connection
    from airflow_provider_slshudi.hooks.iceberg import IcebergHook

    formats = [each for each in FORMATS if each != "delta" or table["path"].startswith(DELTA_SCHEMES)]
    by_value = (table.get("partition") or {}).get("by") == "field"

    def check(text: str) -> Choice:
        named = [part.strip() for part in text.split(",")]
        if unknown := [each for each in named if each not in ENGINES]:
            raise ValueError(f"expected some of {', '.join(ENGINES)}, not {_listed(unknown)}")
        return chosen(named, formats, by_value)

    choice = answer("--engines", "Engines that will query", options.engines, USUAL, check)
    catalog = ""
    if "iceberg" in choice.mirrors:
        say("one of these engines needs an Iceberg mirror, in a catalog")
        catalog = _connection("--catalog", options.catalog, IcebergHook.conn_type, IcebergHook.default_conn_name)
        find_connection(catalog, IcebergHook.conn_type)
    elif options.catalog is not None:
        raise ConfigError("--catalog is for --engines that need Iceberg", source="slshudi init", field="catalog")
    version = {} if choice.version is None else {"version": choice.version}
    return version, mirror(choice.mirrors, catalog, name_of(name))


def _upsert(options: argparse.Namespace, types: Mapping[str, str]) -> dict[str, Any] | None:
    from airflow_provider_slshudi.config.pipeline import KEY_TYPES, ORDERING_TYPES
    from airflow_provider_slshudi.config.table import MOST_BUCKETS

    def keys(text: str) -> list[str]:
        return [] if text == _NONE else [_column(part.strip(), types, KEY_TYPES) for part in text.split(",")]

    def ordering(text: str) -> str | None:
        return None if text == _NONE else _column(text, types, ORDERING_TYPES)

    def buckets(text: str) -> int:
        if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_BUCKETS):
            raise ValueError(f"expected 1 to {MOST_BUCKETS}")
        return int(text)

    key = answer("--key", "Upsert by columns, or none: each log becomes a row", options.key, _NONE, keys)
    if not key:
        for option in ("ordering", "buckets"):
            if getattr(options, option) is not None:
                raise ConfigError(f"--{option} is for --key, which names none", source="slshudi init", field=option)
        return None
    upsert: dict[str, Any] = {"record_key": key[0] if len(key) == 1 else key}
    greatest = answer("--ordering", "The greater value wins of column, or none", options.ordering, _LOG_TIME, ordering)
    if greatest is not None:
        upsert["ordering_field"] = greatest
    question = "Buckets of a partition, for good; each may grow to some hundred megabytes"
    return {**upsert, "buckets": answer("--buckets", question, options.buckets, _BUCKETS, buckets)}


def _connection(option: str, given: str | None, conn_type: str, usual: str) -> str:
    from airflow_provider_slshudi.hooks.connections import connection_ids

    ids = connection_ids(conn_type) if given is None else []
    if len(ids) == 1:
        say(f"connection {ids[0]}: the only one of type {conn_type}")
        return ids[0]
    # A secrets backend may have the usual one, and lists none.
    default = usual if usual in ids or not ids else None
    return answer(option, f"Connection ({_listed(ids) or 'Airflow lists none'})", given, default, str)


def _logstores(connection: str, project: str) -> list[str]:
    """The project's logstores to choose from; none if the key may not list them."""
    say(f"asking {connection} for the logstores of {project}")
    try:
        logstores = service_of(connection, project, "*").logstores()
    except SourceRefused as refused:
        if refused.code != "Unauthorized":
            raise
        say("the key may not list them (log:ListLogStores)")
        return []
    say(f"logstores: {_listed(logstores) or 'none'}")
    return logstores


def _beside(name: str) -> str | None:
    """Beside the tables of all other pipelines, if they lie in one folder."""
    from airflow_provider_slshudi import settings

    folders = set()
    for other in settings.pipeline_names():
        with suppress(ConfigError):  # not ours to complain about
            folders.add(settings.pipeline(other).table.path.rpartition("/")[0])
    return f"{folders.pop()}/{name}" if len(folders) == 1 else None


def _column(text: str, types: Mapping[str, str], fitting: Sequence[str]) -> str:
    if types.get(text) not in fitting:
        columns = [name for name, type_ in types.items() if type_ in fitting]
        raise ValueError(f"expected a column of type {', '.join(fitting)}: {_listed(columns) or 'there is none'}")
    return text


def _listed(names: Sequence[object]) -> str:
    shown = ", ".join(map(str, names[:_MOST_LISTED]))
    return f"{shown} and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else shown
