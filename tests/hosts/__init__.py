"""Machines that share a table, a ledger and a log service: one is lost, cut off or stands still, another goes on."""
