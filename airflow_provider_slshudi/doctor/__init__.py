"""Checks of all that a pipeline needs: this machine, its connections, its permissions. Knows no Airflow."""
