"""Run by Alembic: applies the versions on the connection that `ledger.engine.migrate` opened."""

from __future__ import annotations

from alembic import context

from airflow_provider_slshudi.ledger.engine import VERSION_TABLE
from airflow_provider_slshudi.ledger.models import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=connection.dialect.name != "mysql",
)
with context.begin_transaction():
    context.run_migrations()
