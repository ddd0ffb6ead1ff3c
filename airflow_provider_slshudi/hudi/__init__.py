"""The table, read without a JVM: timeline, columns, bounds, quarantine, leftovers. Knows neither SLS nor Airflow."""
