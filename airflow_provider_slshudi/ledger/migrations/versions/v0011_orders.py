"""The SHA-256 of each batch's order, the DAGs that write each pipeline, and when values of logs expire."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from airflow_provider_slshudi.ledger.migrations import stepwise

revision = "0011"
down_revision = "0010"

_TIME = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql")


def upgrade() -> None:
    """Adds the columns; creates the table, which the next run of each DAG fills."""
    stepwise.add_column("slshudi_transaction", sa.Column("order_digest", sa.String(64)))
    for table in ("slshudi_transaction", "slshudi_unnamed_key"):
        stepwise.add_column(table, sa.Column("values_until", _TIME))
    stepwise.create_index(
        "slshudi_transaction_pipeline_values_until", "slshudi_transaction", ["pipeline", "values_until"]
    )
    stepwise.create_table(
        "slshudi_dag",
        sa.Column("pipeline", sa.String(250), primary_key=True, nullable=False),
        sa.Column("dag_id", sa.String(250), primary_key=True, nullable=False),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
    )
