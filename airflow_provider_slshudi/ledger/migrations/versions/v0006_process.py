"""Which process works on a transaction."""

from __future__ import annotations

import sqlalchemy as sa

from airflow_provider_slshudi.ledger.migrations import stepwise

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Adds the column; the next step of a live transaction fills it."""
    stepwise.add_column("slshudi_transaction", sa.Column("process", sa.String(250)))
