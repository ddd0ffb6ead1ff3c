"""Who rewrites a table's files."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from airflow_provider_slshudi.ledger.migrations import stepwise

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Creates the table, with a row for each pipeline."""
    stepwise.create_table(
        "slshudi_service_lease",
        sa.Column("pipeline", sa.String(250), sa.ForeignKey("slshudi_pipeline.name"), primary_key=True, nullable=False),
        sa.Column("holder", sa.String(250)),
        sa.Column("nonce", sa.String(32)),
        sa.Column("expires", sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql")),
        sa.Column("process", sa.String(250)),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
    )
    op.execute(
        "INSERT INTO slshudi_service_lease (pipeline) SELECT name FROM slshudi_pipeline "
        "WHERE name NOT IN (SELECT pipeline FROM slshudi_service_lease)"
    )
