"""`slshudi try`: what becomes of some logs by a pipeline's file."""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.cli.common import (
    Commands,
    add_json,
    add_pipeline,
    print_json,
    print_table,
    service_of_source,
)
from airflow_provider_slshudi.exceptions import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_slshudi.config.pipeline import Pipeline


def add_to(commands: Commands) -> None:
    """Adds the command."""
    command = commands.add_parser(
        "try",
        help="what becomes of some logs: columns, masks, misfits, filter",
        description="Reads logs as JSON from standard input, an object of texts by key each: one, a list of them, or "
        "one a line. With --sample it takes some from the logstore. Reads the pipeline's file alone, and writes "
        "nothing. Masks by hash use a key of this command alone.",
    )
    add_pipeline(command)
    command.add_argument("--sample", type=int, metavar="N", help="take up to N logs from the logstore's ends")
    add_json(command)
    command.set_defaults(run=_try)


def _try(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi import settings
    from airflow_provider_slshudi.rows.trial import ROW, fates

    pipeline = settings.pipeline(options.pipeline)
    logs = _sampled(pipeline, options.sample) if options.sample else list(_read(sys.stdin.read()))
    outcomes = fates(pipeline, logs)
    if options.json:
        print_json(options.out, {"pipeline": pipeline.name, "logs": [asdict(fate) for fate in outcomes]})
        return 0
    for number, fate in enumerate(outcomes, 1):
        rows = [(name, "NULL" if value is None else str(value), "") for name, value in fate.columns.items()]
        rows += [("partition", fate.partition, "")] if fate.partition else []
        rows += [("", "", misfit) for misfit in fate.misfits]
        becomes = f"a row of {fate.table}" if fate.becomes == ROW else _SAID[fate.becomes]
        if rows:
            title = f"log {number} of {len(outcomes)}: {becomes}"
            print_table(options.out, title, ("column", "value", "what does not fit"), rows)
        else:
            print(f"log {number} of {len(outcomes)}: {becomes}", file=options.out)
    return 0


_SAID = {
    "filtered": "left out, since `where` is not true for it",
    "quarantine": "into the quarantine",
    "dropped": "no row, since it has no value for the record key",
    "fails the batch": "fails the batch",
}


def _read(text: str) -> Iterator[dict[str, Any]]:
    """The logs of a JSON text: an object, a list of objects, or an object a line."""
    try:
        try:
            parsed = json.loads(text)
        except ValueError:
            parsed = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise _wrong(f"it is no JSON: {error}") from None
    logs = parsed if isinstance(parsed, list) else [parsed]
    if not logs or not all(isinstance(log, dict) for log in logs):
        raise _wrong("expected an object, a list of objects, or an object a line")
    for log in logs:
        if not re.fullmatch("[0-9]{1,9}|[1-3][0-9]{9}", str(log.get("__time__", 0))):
            raise _wrong("`__time__` is a number of seconds since 1970")
        try:
            json.dumps(log, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise _wrong("it has half a surrogate pair, which is no text") from None
        yield log


def _wrong(why: str) -> ConfigError:
    return ConfigError(f"standard input: {why}", source="standard input")


def _sampled(pipeline: Pipeline, count: int) -> list[dict[str, Any]]:
    """Some logs of the logstore, as texts by their keys."""
    from airflow_provider_slshudi.sls.sample import sample

    service = service_of_source(pipeline.source)
    logs = sample(service, service.shards(), 10).logs
    step = max(1, logs.num_rows // count)
    own = [name for name in ("__topic__", "__source__") if name in logs.column_names]
    return [
        {
            **{key.decode("utf-8", "backslashreplace"): _text(value) for key, value in log["__rest__"]},
            **{name: _text(log[name]) for name in own},
            "__time__": log["__time__"],
        }
        for log in logs.take(list(range(0, logs.num_rows, step))[:count]).to_pylist()
    ]


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "backslashreplace")
