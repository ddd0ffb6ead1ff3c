"""A listener of Airflow's, by which its scheduler imports once what each of our tasks would import for itself.

LocalExecutor forks its workers from the scheduler, and they fork the tasks (decision 0041).
https://airflow.apache.org/docs/apache-airflow/stable/administration-and-deployment/listeners.html
"""

from __future__ import annotations

import logging
import multiprocessing
import sys
from importlib.metadata import version

from airflow.listeners import hookimpl
from airflow.providers.common.compat.sdk import conf

_log = logging.getLogger(__name__)


@hookimpl
def on_starting(component: object) -> None:
    """Airflow's call where one of its processes begins its work, each task among them."""
    # A scheduler's job has no type yet. Tasks have the arguments of the process that they are forked from.
    is_scheduler = type(component).__name__ == "Job" and sys.argv[1:2] == ["scheduler"]
    try:
        if is_scheduler and "LocalExecutor" in conf.get("core", "executor") and _forks():
            preload()
    except Exception as error:
        # No reason to stop, or to keep other listeners from their call: tasks import for themselves.
        _log.warning("what tasks import is not imported by the scheduler: %s", error)


def _forks() -> bool:
    """Whether this process may be forked with all that is imported: numpy 1 gives all its forks one random seed."""
    return multiprocessing.get_start_method(allow_none=True) in (None, "fork") and int(version("numpy")[0]) > 1


def preload() -> None:
    """Imports what the tasks of a batch import, and opens nothing."""
    import fastavro  # noqa: F401
    import pyarrow.fs  # noqa: F401

    from airflow_provider_slshudi.dag import operations  # noqa: F401
    from airflow_provider_slshudi.downstream import changes, completeness  # noqa: F401
    from airflow_provider_slshudi.hooks import work  # noqa: F401
    from airflow_provider_slshudi.ledger import engine  # noqa: F401
    from airflow_provider_slshudi.transaction import plan, settle, steps  # noqa: F401
