"""What versions do to the schema. On MySQL, a step that was done is left alone.

MySQL keeps what a migration did before it was killed, and not that it did
(https://dev.mysql.com/doc/refman/8.0/en/implicit-commit.html). Elsewhere a version is done whole or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op


def create_table(name: str, *columns: sa.schema.SchemaItem, **options: Any) -> None:
    """Creates a table."""
    there = _inspector()
    if there is None or not there.has_table(name):
        op.create_table(name, *columns, **options)


def add_column(table: str, column: sa.Column[Any]) -> None:
    """Adds a column to a table."""
    there = _inspector()
    if there is None or column.name not in {found["name"] for found in there.get_columns(table)}:
        op.add_column(table, column)


def create_index(name: str, table: str, columns: Sequence[str]) -> None:
    """Creates an index of a table."""
    there = _inspector()
    if there is None or name not in {found["name"] for found in there.get_indexes(table)}:
        op.create_index(name, table, [*columns])


def _inspector() -> sa.Inspector | None:
    bind = op.get_bind()
    return sa.inspect(bind) if bind.dialect.name == "mysql" else None
