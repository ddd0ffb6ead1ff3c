"""Where each shard ended when it was last looked at."""

from __future__ import annotations

import sqlalchemy as sa

from airflow_provider_slshudi.ledger.migrations import stepwise

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Adds the column; the next plan fills it for every shard that the service still has."""
    stepwise.add_column("slshudi_shard", sa.Column("last_end", sa.BigInteger()))
