"""An SLS-compatible server for one machine: demos, users' own DAG tests, this project's tests.

`LocalSls` runs it as a child process; `python -m airflow_provider_slshudi.local` runs it by itself.
"""

from airflow_provider_slshudi.local.process import LocalSls

__all__ = ["LocalSls"]
