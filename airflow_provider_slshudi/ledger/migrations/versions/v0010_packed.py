"""Old batches, packed."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from airflow_provider_slshudi.ledger.migrations import stepwise

revision = "0010"
down_revision = "0009"

_BLOB = sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), "mysql")


def upgrade() -> None:
    """Creates the table, which `slshudi ledger prune` fills."""
    stepwise.create_table(
        "slshudi_packed",
        sa.Column(
            "transaction_id", sa.String(40), sa.ForeignKey("slshudi_transaction.id"), primary_key=True, nullable=False
        ),
        sa.Column("ranges", _BLOB, nullable=False),
        sa.Column("events", _BLOB, nullable=False),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
    )
