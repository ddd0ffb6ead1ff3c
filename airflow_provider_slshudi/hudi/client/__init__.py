"""Hudi's own classes, asked for inside a driver: instants, commits, table services, the metadata table."""
