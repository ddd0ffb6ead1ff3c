"""`slshudi partitions`: which partitions of event times are complete, and what proves it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from typing import TYPE_CHECKING, TextIO

from airflow_provider_slshudi.cli.common import Commands, add_json, print_json, print_table, require_known, tell_unread
from airflow_provider_slshudi.exceptions import ConfigError

if TYPE_CHECKING:
    from airflow_provider_slshudi.ledger.ledger import Ledger
    from airflow_provider_slshudi.ledger.records import Completion, PartitionRow, PartitionState

_COMMAND = "partitions"
_SHOWN = 48
"""So many of the newest partitions are shown where no time is given."""
_DAY, _WIDEST = 86_400, 1 << 33


def add_to(commands: Commands) -> None:
    """Adds the command."""
    command = commands.add_parser(
        _COMMAND,
        help="which partitions of event times are complete, open, or open again",
        description="Of pipelines whose file declares the `lateness` of `table.partition`. A partition is complete "
        "once all logs are committed that the service received until its end and the lateness.",
    )
    command.add_argument("pipeline", metavar="NAME", help="a pipeline's name in the ledger")
    command.add_argument(
        "--since", type=_span, metavar="2d", help=f"those that began since then (default: the newest {_SHOWN})"
    )
    command.add_argument("--state", type=_states, metavar="STATE,...", help="only open, complete, reopened or partial")
    command.add_argument(
        "--proof", metavar="PARTITION", help="by shard, the cursor before which all was committed when it was complete"
    )
    add_json(command)
    command.set_defaults(run=_run)


def _span(text: str) -> int:
    from airflow_provider_slshudi.config.values import pause

    if re.fullmatch(r"[1-9][0-9]{0,5}[smhd]", text):
        return int(pause(text).total_seconds())
    raise argparse.ArgumentTypeError(f"{text[:20]!r} is no span of time: expected one like 12h or 2d")


def _states(text: str) -> frozenset[PartitionState]:
    from airflow_provider_slshudi.ledger.records import PartitionState

    try:
        return frozenset(map(PartitionState, text.split(",")))
    except ValueError:
        states = ", ".join(state.value for state in PartitionState)
        raise argparse.ArgumentTypeError(f"{text[:40]!r}: expected some of {states}, with commas between") from None


def _run(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.hooks.ledger import each_ledger

    name = options.pipeline
    looks, errors = each_ledger(lambda ledger: (ledger, {item.name for item in ledger.pipelines()}))
    tell_unread(errors)
    require_known([name], {item for _, names in looks for item in names}, errors, _COMMAND)
    ledger = next(ledger for ledger, names in looks if name in names)
    if options.proof is not None:
        _show_proof(options, ledger)
        return 0
    watermark, looked = ledger.progress(name)
    shown = _chosen(ledger, options)
    if options.json:
        partitions = [{**asdict(item), "state": item.state.value, "kind": item.kind.value} for item in shown]
        print_json(options.out, {"pipeline": name, "watermark": watermark, "looked": looked, "partitions": partitions})
    else:
        _show(options.out, name, watermark, looked, shown)
    return 3 if errors else 0


def _chosen(ledger: Ledger, options: argparse.Namespace) -> list[PartitionRow]:
    now = int(ledger.now().timestamp())
    if options.since is not None:
        partitions = ledger.partitions(options.pipeline, now - options.since, now)
    else:
        partitions, span = [], _DAY
        # A partition may be an hour, a day or a month.
        while len(partitions) < _SHOWN and span < _WIDEST:
            span *= 8
            partitions = ledger.partitions(options.pipeline, now - span, now)
        partitions = partitions[-_SHOWN:]
    return [item for item in partitions if options.state is None or item.state in options.state]


def _show(
    out: TextIO, name: str, watermark: int | None, looked: int | None, partitions: Sequence[PartitionRow]
) -> None:
    columns = ("partition", "state", "rows", "commits", "times complete", "gaps", "complete since (UTC)")
    rows = [
        (item.value, item.state, item.rows, item.commits, item.times, item.gaps, item.completed) for item in partitions
    ]
    print_table(out, f"Partitions of {name}", columns, rows)
    if looked is None:
        print(
            "no look is kept: the file declares no `table.partition.lateness`, or no batch was planned since", file=out
        )
        return
    until = "it is not known until when" if watermark is None else f"until {_shown(watermark)}"
    print(f"watermark: all is committed that the service received {until}; the newest look: {_shown(looked)}", file=out)


def _show_proof(options: argparse.Namespace, ledger: Ledger) -> None:
    name, value = options.pipeline, options.proof
    done = next(iter(ledger.completions_of(name, value, 1)), None)
    if done is None:
        raise ConfigError(
            f"pipeline {name}: partition {value!r} never was complete; those that are: `slshudi partitions {name}`",
            source=_COMMAND,
            field="proof",
            value=value,
        )
    proof = ledger.proof(name, done.number)
    if options.json:
        print_json(options.out, {"pipeline": name, **asdict(done), "proof": proof})
        return
    print_table(options.out, _title(name, done), ("shard", "all committed before cursor"), sorted(proof.items()))


def _title(name: str, done: Completion) -> str:
    times = "for the first time" if done.times == 1 else f"for the {done.times}th time"
    return (
        f"{name}: partition {done.value} was complete {times} at {done.at:%Y-%m-%d %H:%M:%S} UTC, with {done.rows} "
        f"rows and the commits up to place {done.place}; all was committed that the service received until "
        f"{_shown(done.watermark)}"
    )


def _shown(unix_seconds: int) -> str:
    return f"{datetime.fromtimestamp(unix_seconds, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
