"""Cleans and archives the pipeline's table every hour, while batches go on."""

from airflow_provider_slshudi import maintenance_dag

dag = maintenance_dag("ad_events")
