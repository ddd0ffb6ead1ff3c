"""One DAG in place of those of backfill, verification, repair and maintenance: unpause this one or theirs."""

from airflow_provider_slshudi import operations_dag

dag = operations_dag("ad_events")
