"""Who holds a lease, and what others wrote that is meant to be there."""

from __future__ import annotations

import sqlalchemy as sa

from airflow_provider_slshudi.ledger.migrations import stepwise

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Adds the columns."""
    stepwise.add_column("slshudi_lease", sa.Column("process", sa.String(250)))
    stepwise.add_column("slshudi_pipeline", sa.Column("accepted", sa.String(32)))
