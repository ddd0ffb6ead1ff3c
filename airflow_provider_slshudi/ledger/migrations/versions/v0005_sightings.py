"""What a person sees of a pipeline: how far it is behind, what keeps it, and what people did."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from airflow_provider_slshudi.ledger.migrations import stepwise

revision = "0005"
down_revision = "0004"

_TIME = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql")
_OPTIONS: dict[str, Any] = {"mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin", "mysql_engine": "InnoDB"}


def upgrade() -> None:
    """Creates three tables, an index of runs, and a column that the next plan fills."""
    stepwise.create_index("slshudi_transaction_run_id", "slshudi_transaction", ["run_id"])
    stepwise.add_column("slshudi_shard", sa.Column("unread_since", sa.BigInteger()))
    stepwise.create_table(
        "slshudi_sighting",
        sa.Column("pipeline", sa.String(250), primary_key=True, nullable=False),
        sa.Column("at", _TIME, primary_key=True, nullable=False),
        sa.Column("came", sa.BigInteger()),
        sa.Column("came_bytes", sa.BigInteger()),
        sa.Column("unread", sa.BigInteger(), nullable=False),
        sa.Column("unread_bytes", sa.BigInteger()),
        sa.Column("unread_since", sa.BigInteger()),
        sa.Column("kept", sa.BigInteger()),
        **_OPTIONS,
    )
    stepwise.create_table(
        "slshudi_trouble",
        sa.Column("pipeline", sa.String(250), primary_key=True, nullable=False),
        sa.Column("dag_id", sa.String(250), primary_key=True, nullable=False),
        sa.Column("step", sa.String(64), primary_key=True, nullable=False),
        sa.Column("error", sa.String(64), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("waits", sa.Boolean(), nullable=False),
        sa.Column("run_id", sa.String(250), nullable=False),
        sa.Column("transaction_id", sa.String(40)),
        sa.Column("since", _TIME, nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("times", sa.Integer(), nullable=False),
        **_OPTIONS,
    )
    stepwise.create_table(
        "slshudi_deed",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True),
        sa.Column("pipeline", sa.String(250), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("act", sa.String(64), nullable=False),
        sa.Column("who", sa.String(250), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("run", sa.String(501), nullable=False),
        sa.Column("transaction_id", sa.String(40)),
        sa.Column("result", sa.Text()),
        **_OPTIONS,
    )
    stepwise.create_index("slshudi_deed_pipeline_id", "slshudi_deed", ["pipeline", "id"])
