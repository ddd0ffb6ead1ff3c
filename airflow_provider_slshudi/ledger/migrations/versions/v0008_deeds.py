"""What a deed is about, for those who follow it."""

from __future__ import annotations

import sqlalchemy as sa

from airflow_provider_slshudi.ledger.migrations import stepwise

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Adds the column; deeds of before have none."""
    stepwise.add_column("slshudi_deed", sa.Column("about", sa.JSON()))
