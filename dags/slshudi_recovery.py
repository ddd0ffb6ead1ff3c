"""Decides, when it is run by hand, what earlier runs of the pipeline left undecided."""

from airflow_provider_slshudi import recovery_dag

dag = recovery_dag("ad_events")
