"""The steps of a transaction: settle, plan, open, append, record, commit. Joins ledger, planning, table and jobs.

Each step is a function of what the ledger and the table hold, so it may be run again by anybody; docs/design.md.
"""
