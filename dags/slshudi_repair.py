"""What the buttons of the pipeline's page trigger that lose nothing; see the params of a manual run."""

from airflow_provider_slshudi import repair_dag

dag = repair_dag("ad_events")
