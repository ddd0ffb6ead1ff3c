"""Airflow operators: one per step of a transaction, each a call of one function of `transaction`."""
