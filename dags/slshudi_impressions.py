"""What is new in the logstore of dags/pipelines/ad_impressions.yaml, and which hours of its table are complete."""

from airflow_provider_slshudi import tail_dag

dag = tail_dag("ad_impressions")
