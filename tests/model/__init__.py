"""The protocol against a model of everything beside it: Hudi, Spark, the log service, the scheduler, time.

The code of `protocol/`, `ledger/`, `planning/`, `notes/`, `hudi/`, `hudi/files/` and `job/` runs as it is, without
`hudi/client/`, on a ledger in SQLite and a table's folder on disk.
"""
