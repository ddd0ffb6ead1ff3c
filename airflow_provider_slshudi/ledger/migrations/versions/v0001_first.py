"""The first tables, as `models` has them.

A later version changes these tables by itself, and does nothing where it finds its change: in a new database the
tables of here have it already.
"""

from __future__ import annotations

from alembic import op

from airflow_provider_slshudi.ledger.models import metadata

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Creates all tables and indexes that are not there.

    MySQL keeps what a migration did before it was killed (https://dev.mysql.com/doc/refman/8.0/en/implicit-commit.html).
    """
    connection = op.get_bind()
    for table in metadata.sorted_tables:
        table.create(connection, checkfirst=True)
        for index in table.indexes:
            index.create(connection, checkfirst=True)
