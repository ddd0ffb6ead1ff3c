"""Starts drivers: Java, jars and settings, spark-submit, the resident process."""
