"""Many pipelines in one DAG instead of a tail of each; unpause this one or theirs."""

from airflow_provider_slshudi import fleet_dag

dag = fleet_dag(["ad_events"], "ad_fleet")
