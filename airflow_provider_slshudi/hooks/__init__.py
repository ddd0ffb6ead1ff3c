"""Airflow hooks: the ways to the log service, the ledger and Spark."""
