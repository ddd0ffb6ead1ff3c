"""What the buttons of the pipeline's page trigger that may lose data: give this DAG permissions of its own."""

from airflow_provider_slshudi import override_dag

dag = override_dag("ad_events")
