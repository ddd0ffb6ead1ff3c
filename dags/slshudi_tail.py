"""What is new in the logstore of dags/pipelines/ad_events.yaml, batch by batch."""

from airflow_provider_slshudi import tail_dag

dag = tail_dag("ad_events")
