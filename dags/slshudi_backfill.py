"""Older logs of the same pipeline, by cursors or receive times; see the params of a manual run."""

from airflow_provider_slshudi import backfill_dag

dag = backfill_dag("ad_events")
