# PYTHON_ARGCOMPLETE_OK: shells complete the command
"""The command `slshudi`: makes and looks at pipelines, columns and ledger, recovers, proves tables, runs the demo.

Connections are Airflow's: AIRFLOW_CONN_* variables, secrets backends, or its metadata database.
Exit codes: 0 well, 1 an error, a failed proof or something undecided, 2 wrong usage, 3 a person has to look.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from importlib.metadata import version
from typing import Any

from airflow_provider_slshudi import __version__
from airflow_provider_slshudi.cli import (
    backfill,
    complete_partitions,
    consumer_places,
    doctor,
    init,
    ledger,
    pack,
    repair,
    reports,
    schema,
    table,
    try_logs,
)
from airflow_provider_slshudi.exceptions import SlsHudiError


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] and arguments[0] in _FORWARDED:
        return _FORWARDED[arguments[0]](arguments[1:])
    parser = _parser()
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser)
    options = parser.parse_args(arguments)
    # As Airflow's own commands do: connections may also come from its metadata database.
    os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
    os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "WARNING")
    options.out = sys.stdout
    try:
        with redirect_stdout(sys.stderr):  # where Airflow's log belongs
            return int(options.run(options))
    except SlsHudiError as error:
        print(f"slshudi: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="slshudi", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action=_Version, help="versions of this package and of what it stands on")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=argparse.ArgumentParser)
    commands.add_parser("demo", help="the whole way on this machine, with a proof")
    commands.add_parser("local-sls", help="an SLS-compatible server on this machine, in the foreground")
    for add in (
        init.add_to,
        reports.add_status,
        doctor.add_to,
        reports.add_plan,
        backfill.add_to,
        complete_partitions.add_to,
        consumer_places.add_to,
        ledger.add_to,
        repair.add_recover,
        repair.add_abandon,
        repair.add_skip,
        reports.add_verify,
        repair.add_quarantine,
        schema.add_to,
        try_logs.add_to,
        table.add_to,
        pack.add_to,
    ):
        add(commands)
    return parser


class _Parser(argparse.ArgumentParser):
    """Takes commands that have a short form in that, too."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does."""
        return super().parse_known_args(None if args is None else consumer_places.with_action(args), namespace)


class _Version(argparse.Action):
    """Prints the versions that a report of an error needs, and ends."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from airflow_provider_slshudi.spark.pins import HUDI_PACKAGE
        from airflow_provider_slshudi.system.native import DECODER

        print(f"slshudi {__version__}")
        for name in ("apache-airflow", "pyspark", "pyarrow"):
            print(f"{name} {version(name)}")
        print(f"hudi {HUDI_PACKAGE.rpartition(':')[2]}")
        print(f"decoder: {DECODER} {version(DECODER)}")
        print(f"python {platform.python_version()}")
        parser.exit()


def _demo(arguments: Sequence[str]) -> int:
    from airflow_provider_slshudi.cli import demo

    return demo.main(arguments)


def _local_sls(arguments: Sequence[str]) -> int:
    os.execv(sys.executable, [sys.executable, "-m", "airflow_provider_slshudi.local", *arguments])  # noqa: S606


_FORWARDED: dict[str, Callable[[Sequence[str]], int]] = {"demo": _demo, "local-sls": _local_sls}
