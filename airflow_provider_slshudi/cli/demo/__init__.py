"""The whole way on one machine: the log service, Airflow, Spark and the table, with a driver killed on the way."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Runs the demo; 0 if its proof holds."""
    from airflow_provider_slshudi.cli.demo.run import run

    return run(arguments)
