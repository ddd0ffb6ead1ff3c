"""Alibaba Cloud SLS logs into an Apache Hudi table, exactly once, one Airflow DAG run per transaction."""

__version__ = "0.1.0"
