"""What people had done to pipelines, written and read on a connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, insert, select, update

from airflow_provider_slshudi.ledger import models
from airflow_provider_slshudi.ledger.engine import now
from airflow_provider_slshudi.ledger.records import AuditEntry
from airflow_provider_slshudi.ledger.transactions import plain

_deeds = models.deeds
_DEED = models.columns(_deeds, AuditEntry)


def begin(connection: Connection, found: Mapping[str, Any]) -> int:
    """See `Ledger.audited`."""
    values = {**found, "reason": plain(found["reason"]), "who": found["who"][: models.NAME_LENGTH]}
    values["at"] = now(connection)
    (id_,) = connection.execute(insert(_deeds).values(values)).inserted_primary_key or (0,)
    return int(id_)


def end(connection: Connection, id_: int, result: str) -> None:
    """See `Ledger.audited`."""
    connection.execute(update(_deeds).where(_deeds.c.id == id_).values(result=plain(result)))


def ask(connection: Connection, found: Mapping[str, Any]) -> None:
    """See `Ledger.ask`."""
    of_run = _of_run(found["pipeline"], found["act"], found["run"])
    before = connection.execute(select(_deeds.c.about).where(of_run).limit(1)).first()
    if before is None:
        begin(connection, found)
    else:
        # A person cleared its task: it goes on, and what it began with stays.
        connection.execute(update(_deeds).where(of_run).values(result=None, about=before.about or found["about"]))


def answer(connection: Connection, pipeline: str, act: str, run: str, result: str) -> None:
    """Keeps how something ended that `ask` began, the last time if several; does nothing where it never began.

    Args:
        pipeline: its name.
        act: an `Act`'s name.
        run: the DAG run, as text.
        result: how it ended.
    """
    connection.execute(update(_deeds).where(_of_run(pipeline, act, run)).values(result=plain(result)))


def _of_run(pipeline: str, act: str, run: str) -> ColumnElement[bool]:
    return (_deeds.c.pipeline == pipeline) & (_deeds.c.act == act) & (_deeds.c.run == run)


def last(connection: Connection, pipeline: str, limit: int, *acts: str) -> list[AuditEntry]:
    """What people had done to the pipeline, or the deeds of some acts, the newest first."""
    query = select(*_DEED).where(_deeds.c.pipeline == pipeline).order_by(_deeds.c.id.desc()).limit(limit)
    if acts:
        query = query.where(_deeds.c.act.in_(acts))
    return [AuditEntry(*row) for row in connection.execute(query)]
