"""The table: timeline, instants, base files, commits. Knows Spark and Hudi's JVM classes, neither SLS nor Airflow."""
