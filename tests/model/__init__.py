"""The protocol against a model of everything beside it: Hudi, Spark, the log service, the scheduler, time.

The code of `transaction/`, `ledger/`, `planning/`, `handover/`, `hudi/`, `hudi/files/` and `spark/driver/` runs as it
is, without `hudi/client/`, on a ledger in SQLite and a table's folder on disk.
"""
