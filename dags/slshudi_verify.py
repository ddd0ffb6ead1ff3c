"""Proves, when it is run by hand, that every committed log is in the table once."""

from airflow_provider_slshudi import verify_dag

dag = verify_dag("ad_events")
