"""The column that keeps a key which no column names."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from airflow_provider_slshudi.ledger.models import unnamed_keys

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Adds it where it is not there: a new database has it, and on MySQL a try that was killed may have added it."""
    column = unnamed_keys.c.kept_in
    columns = sa.inspect(op.get_bind()).get_columns(unnamed_keys.name)
    if column.name not in {each["name"] for each in columns}:
        op.add_column(unnamed_keys.name, sa.Column(column.name, column.type))
