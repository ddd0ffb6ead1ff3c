"""The first tables."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from airflow_provider_slshudi.ledger.migrations import stepwise

revision = "0001"
down_revision = None

_TIME = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql")
_MYSQL: dict[str, Any] = {"mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin", "mysql_engine": "InnoDB"}


def _column(name: str, type_: sa.types.TypeEngine[Any], nullable: bool = False, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, type_, nullable=nullable, **options)


def _pipeline(primary_key: bool = True) -> sa.Column[str]:
    reference = sa.ForeignKey("slshudi_pipeline.name")
    return sa.Column("pipeline", sa.String(250), reference, primary_key=primary_key, nullable=False)


def _transaction(primary_key: bool = True) -> sa.Column[str]:
    reference = sa.ForeignKey("slshudi_transaction.id")
    return sa.Column("transaction_id", sa.String(40), reference, primary_key=primary_key, nullable=False)


def _key(name: str, type_: sa.types.TypeEngine[Any]) -> sa.Column[Any]:
    return _column(name, type_, primary_key=True, autoincrement=False)


def upgrade() -> None:
    """Creates all tables."""
    stepwise.create_table(
        "slshudi_pipeline",
        _column("name", sa.String(250), primary_key=True),
        _column("source", sa.String(700)),
        _column("base_path", sa.String(700), unique=True),
        _column("created", _TIME),
        **_MYSQL,
    )
    stepwise.create_table(
        "slshudi_lease",
        _pipeline(),
        _column("holder", sa.String(250), nullable=True),
        _column("nonce", sa.String(32), nullable=True),
        _column("expires", _TIME, nullable=True),
        **_MYSQL,
    )
    stepwise.create_table(
        "slshudi_shard",
        _pipeline(),
        _key("shard", sa.Integer()),
        _column("status", sa.String(20)),
        _column("hash_begin", sa.String(64)),
        _column("hash_end", sa.String(64)),
        _column("first", sa.BigInteger()),
        _column("bytes_per_group", sa.Float(), nullable=True),
        _column("rows_per_group", sa.Float(), nullable=True),
        **_MYSQL,
    )
    stepwise.create_table(
        "slshudi_transaction",
        _column("id", sa.String(40), primary_key=True),
        _pipeline(primary_key=False),
        _column("kind", sa.String(16)),
        _column("state", sa.String(16)),
        _column("token", sa.Integer()),
        _column("instant", sa.String(32), nullable=True),
        _column("dag_id", sa.String(250)),
        _column("run_id", sa.String(250)),
        _column("manifest", sa.JSON(), nullable=True),
        _column("rows", sa.BigInteger()),
        _column("bytes", sa.BigInteger()),
        _column("error", sa.Text(), nullable=True),
        _column("created", _TIME),
        _column("changed", _TIME),
        _column("heartbeat", _TIME),
        _column("completed", sa.String(32), nullable=True),
        sa.UniqueConstraint("pipeline", "instant"),
        **_MYSQL,
    )
    for columns in (["id"], ["state", "id"], ["completed"]):
        name = "_".join(["slshudi_transaction_pipeline", *columns])
        stepwise.create_index(name, "slshudi_transaction", ["pipeline", *columns])
    stepwise.create_table(
        "slshudi_range",
        _transaction(),
        _key("shard", sa.Integer()),
        _key("begin_cursor", sa.BigInteger()),
        _column("end_cursor", sa.BigInteger()),
        _column("gap", sa.Boolean()),
        _column("rows", sa.BigInteger(), nullable=True),
        _column("bytes", sa.BigInteger(), nullable=True),
        _column("first_time", sa.BigInteger(), nullable=True),
        _column("last_time", sa.BigInteger(), nullable=True),
        **_MYSQL,
    )
    stepwise.create_table(
        "slshudi_coverage",
        _pipeline(),
        _key("shard", sa.Integer()),
        _key("begin_cursor", sa.BigInteger()),
        _column("end_cursor", sa.BigInteger()),
        **_MYSQL,
    )
    stepwise.create_table(
        "slshudi_event",
        _column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True),
        _transaction(primary_key=False),
        _column("at", _TIME),
        _column("what", sa.String(64)),
        _column("detail", sa.Text()),
        **_MYSQL,
    )
    stepwise.create_index("slshudi_event_transaction_id_id", "slshudi_event", ["transaction_id", "id"])
