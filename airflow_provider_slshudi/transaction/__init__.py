"""The steps of a transaction: settle, plan, open, append, record, commit. They join ledger, planning, table and jobs.

Each step depends only on what the ledger and the table hold, so any process may run it again; see docs/design.md.
"""
