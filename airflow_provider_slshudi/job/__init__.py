"""What spark-submit runs: the verbs open, append, commit, rollback, verify. Joins `sls` and `hudi`, without Airflow."""
