"""`slshudi verify`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, TextIO

from airflow_provider_slshudi.cli.common import Commands, add_json, add_pipeline, print_json, print_table, work_of

if TYPE_CHECKING:
    from airflow_provider_slshudi.protocol.proof import Proof


def add_to(commands: Commands) -> None:
    """Adds the command."""
    command = commands.add_parser("verify", help="the table's rows against the ledger, and against the service")
    add_pipeline(command)
    command.add_argument("--source", action="store_true", help="read again, too, what the log service still holds")
    add_json(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.protocol.verify import verify

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
