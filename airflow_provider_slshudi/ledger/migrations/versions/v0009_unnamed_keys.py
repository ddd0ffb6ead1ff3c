"""Keys of logs that no column names."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from airflow_provider_slshudi.ledger.migrations import stepwise

revision = "0009"
down_revision = "0008"

_TIME = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql")


def upgrade() -> None:
    """Creates the table, which the next batches fill."""
    stepwise.create_table(
        "slshudi_unnamed_key",
        sa.Column("pipeline", sa.String(250), primary_key=True, nullable=False),
        sa.Column("id", sa.String(64), primary_key=True, nullable=False),
        sa.Column("key", sa.String(250), nullable=False),
        sa.Column("transaction_id", sa.String(40), nullable=False),
        sa.Column("first", _TIME, nullable=False),
        sa.Column("last", _TIME, nullable=False),
        sa.Column("logs", sa.BigInteger(), nullable=False),
        sa.Column("looked", sa.BigInteger(), nullable=False),
        sa.Column("examples", sa.JSON(), nullable=False),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
    )
    stepwise.create_index("slshudi_unnamed_key_first", "slshudi_unnamed_key", ["first"])
