"""What people had done to pipelines, written and read on a connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, insert, select, update

from airflow_provider_slshudi.ledger import models
from airflow_provider_slshudi.ledger.engine import now
from airflow_provider_slshudi.ledger.records import Deed
from airflow_provider_slshudi.ledger.transactions import plain

_acts = models.acts
_DEED = [_acts.c[name] if name in _acts.c else _acts.c.transaction_id.label(name) for name in Deed.__slots__]


def begin(connection: Connection, found: Mapping[str, Any]) -> int:
    """See `Ledger.acts`."""
    values = {**found, "reason": plain(found["reason"]), "who": found["who"][: models.NAME_LENGTH]}
    values["at"] = now(connection)
    (id_,) = connection.execute(insert(_acts).values(values)).inserted_primary_key or (0,)
    return int(id_)


def end(connection: Connection, id_: int, result: str) -> None:
    """See `Ledger.acts`."""
    connection.execute(update(_acts).where(_acts.c.id == id_).values(result=plain(result)))


def last(connection: Connection, pipeline: str, limit: int) -> list[Deed]:
    """The newest, newest first."""
    query = select(*_DEED).where(_acts.c.pipeline == pipeline).order_by(_acts.c.id.desc()).limit(limit)
    return [Deed(*row) for row in connection.execute(query)]
