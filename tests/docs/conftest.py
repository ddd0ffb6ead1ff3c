"""Airflow's own folder and database, and pipelines with tables, as for the command line's other tests."""

from tests.airflow.conftest import pytest_sessionfinish  # noqa: F401  its folder is made before Airflow is imported
from tests.transaction.conftest import scenario, server  # noqa: F401
