"""The protocol against a model of everything beside it: Hudi, Spark, the log service, the scheduler, time.

The code of `protocol/`, `ledger/`, `planning/`, `hudi/exchange.py`, `hudi/timeline.py`, `hudi/basefile.py`,
`job/verbs.py` and `job/append.py` runs as it is, on a ledger in SQLite and a table's folder on disk.
"""
