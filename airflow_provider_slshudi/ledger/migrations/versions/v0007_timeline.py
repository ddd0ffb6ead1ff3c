"""What runs saw of the tables' timelines."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from airflow_provider_slshudi.ledger.migrations import stepwise

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Creates the table; the next settle of each pipeline fills it."""
    stepwise.create_table(
        "slshudi_timeline",
        sa.Column("pipeline", sa.String(250), primary_key=True, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql"), nullable=False),
        sa.Column("run", sa.String(501), nullable=False),
        sa.Column("oldest", sa.String(32), nullable=False),
        sa.Column("first", sa.String(32), nullable=False),
        sa.Column("instants", sa.JSON(), nullable=False),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
    )
