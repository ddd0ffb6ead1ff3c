"""Logs to typed rows with their keys and partitions, by Arrow alone."""
