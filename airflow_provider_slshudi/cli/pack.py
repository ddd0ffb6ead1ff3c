"""`slshudi pack`."""

from __future__ import annotations

import argparse
from pathlib import Path

from airflow_provider_slshudi.cli.common import Commands, add_json, print_json


def add_to(commands: Commands) -> None:
    """Adds the command."""
    command = commands.add_parser(
        "pack",
        help="make the archive with which a cluster's executors need nothing but Python",
        description="Writes this package, slshudi-native if it is installed, and all that tasks import into FILE. Name "
        "it in `spark.archive` of pipelines' files. It fits executors with this Python version and this kind of "
        "machine. Make it anew after each upgrade: executors compare it with the driver before they read.",
    )
    command.add_argument("file", type=Path, metavar="FILE", help="where to write it, for example slshudi.tar.gz")
    add_json(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.spark.python_archive import pack

    size, held = pack(options.file)
    if options.json:
        print_json(options.out, {"file": str(options.file.absolute()), "bytes": size, "holds": held})
    else:
        print(f"{options.file.absolute()}: {size / 1e6:.0f} MB, with {', '.join(held)}", file=options.out)
    return 0
