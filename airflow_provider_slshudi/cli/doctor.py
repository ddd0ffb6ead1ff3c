"""`slshudi doctor`."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, TextIO

from airflow_provider_slshudi.cli.common import Commands, add_json, add_pipeline, print_json

if TYPE_CHECKING:
    from airflow_provider_slshudi.doctor.finding import Finding

_INDENT = " " * 31


def add_to(commands: Commands) -> None:
    """Adds the command."""
    command = commands.add_parser(
        "doctor",
        help="look at all that pipelines need: this machine, connections, permissions, storage, clocks",
        description="Looks from this machine, with its settings and as its user; run it where Airflow's tasks run. "
        "Changes nothing. Exit codes: 0 nothing is wrong, 1 something is. What is not known is not ok.",
    )
    add_pipeline(command, nargs="*", help="pipelines' names or files; all of the pipelines folder where none is given")
    add_json(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.doctor.finding import Verdict

    findings: list[Finding] = []
    for item in _findings(options.pipeline):
        if not options.json:
            _print(options.out, item, begins=not findings or findings[-1].about != item.about)
        findings.append(item)
    counts = Counter(item.verdict for item in findings)
    if options.json:
        tally = {verdict.value: counts[verdict] for verdict in Verdict}
        print_json(options.out, {"counts": tally, "findings": [asdict(item) for item in findings]})
    else:
        print("\n" + ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict), file=options.out)
    return int(counts[Verdict.WRONG] > 0)


def _findings(pipelines: Sequence[str]) -> Iterator[Finding]:
    from airflow_provider_slshudi.doctor import machine
    from airflow_provider_slshudi.doctor.finding import run

    yield from run("this machine", machine.checks())
    # Importing Airflow takes seconds.
    from airflow_provider_slshudi.hooks.doctor import findings

    yield from findings(pipelines)


def _print(out: TextIO, item: Finding, begins: bool) -> None:
    lines = f"{item.seen}\n-> {item.mend}" if item.mend else item.seen
    shown = lines.replace("\n", f"\n{_INDENT}")
    title = f"{item.about}\n" if begins else ""
    print(f"{title}  {item.verdict.value:<10} {item.check:<17} {shown}", file=out, flush=True)
