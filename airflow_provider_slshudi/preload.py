"""A listener of Airflow's, by which its scheduler imports once what each of our tasks would import for itself.

LocalExecutor forks its workers from the scheduler, and they fork the tasks (decision 0041).
https://airflow.apache.org/docs/apache-airflow/stable/administration-and-deployment/listeners.html
"""

from __future__ import annotations

import sys

from airflow.listeners import hookimpl


@hookimpl
def on_starting(component: object) -> None:
    """Airflow's call where one of its processes begins its work; a scheduler's job has no type yet."""
    if sys.argv[1:2] == ["scheduler"]:
        preload()


def preload() -> None:
    """Imports what the tasks of a batch import, and opens nothing."""
    import fastavro  # noqa: F401
    import pyarrow.fs  # noqa: F401

    from airflow_provider_slshudi import dag  # noqa: F401
    from airflow_provider_slshudi.hooks import work  # noqa: F401
    from airflow_provider_slshudi.ledger import engine
    from airflow_provider_slshudi.protocol import plan, settle, steps  # noqa: F401

    engine.newest()
