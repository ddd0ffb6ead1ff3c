"""The SHA-256 of each batch's order: an append carries out no other."""

from __future__ import annotations

import sqlalchemy as sa

from airflow_provider_slshudi.ledger.migrations import stepwise

revision = "0015"
down_revision = "0010"


def upgrade() -> None:
    """Adds the column."""
    stepwise.add_column("slshudi_transaction", sa.Column("order_digest", sa.String(64)))
