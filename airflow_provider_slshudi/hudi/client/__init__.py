"""Calls Hudi's own classes inside a driver: instants, commits, table services, the metadata table."""
