"""The ledger's schema, version by version (Alembic)."""
