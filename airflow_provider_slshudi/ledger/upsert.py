"""Inserts or updates many rows in one statement, in the dialect of each of the three databases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import mysql, postgresql, sqlite


def upsert(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]], changes: Sequence[str]) -> None:
    """Inserts whole `rows`; where a row of the same primary key is there, its columns `changes` are set instead.

    Drivers send the rows together; an UPDATE per row would cost MySQL a round trip for each.

    Args:
        connection: of a writing transaction.
        table: one of `models`.
        rows: whole rows, by column.
        changes: names of the columns to set.
    """
    if not rows:
        return
    if connection.dialect.name == "mysql":
        added = mysql.insert(table)
        connection.execute(added.on_duplicate_key_update({name: added.inserted[name] for name in changes}), rows)
        return
    insert = postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)
    excluded = {name: insert.excluded[name] for name in changes}
    connection.execute(insert.on_conflict_do_update(index_elements=table.primary_key.columns, set_=excluded), rows)
