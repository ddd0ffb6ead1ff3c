"""What is seen of pipelines, on a connection: the service's shards, the table's timeline, and steps in trouble."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Select, bindparam, delete, insert, select, update

from airflow_provider_slshudi.ledger import models
from airflow_provider_slshudi.ledger.engine import now
from airflow_provider_slshudi.ledger.models import upsert
from airflow_provider_slshudi.ledger.records import BacklogSample, SeenInstant, SeenTimeline, State, Trouble
from airflow_provider_slshudi.ledger.transactions import plain

KEPT = timedelta(hours=48)
"""How long a sighting stays."""
_sightings = models.sightings
_troubles = models.troubles
_SEEN = models.columns(_sightings, BacklogSample)
_TROUBLE = models.columns(_troubles, Trouble)
_SEEN_TIMELINE = models.columns(models.timelines, SeenTimeline)


def save(connection: Connection, pipeline: str, sighting: BacklogSample, since: Mapping[int, int | None]) -> None:
    """Keeps a sighting for 48 hours; `since` is each saved shard's part of `BacklogSample.unread_since`."""
    connection.execute(
        delete(_sightings).where(_sightings.c.pipeline == pipeline, _sightings.c.at < sighting.at - KEPT)
    )
    # Two looks of one microsecond are one; looks that are yet to come were taken by a clock that was ahead.
    connection.execute(delete(_sightings).where(_sightings.c.pipeline == pipeline, _sightings.c.at >= sighting.at))
    connection.execute(insert(_sightings).values(pipeline=pipeline, **asdict(sighting)))
    stored_times, table = unread_since(connection, pipeline), models.shards
    changed = [
        {"of_shard": shard, "to": moment} for shard, moment in since.items() if stored_times.get(shard) != moment
    ]
    if changed:
        of_shard = (table.c.pipeline == pipeline) & (table.c.shard == bindparam("of_shard"))
        connection.execute(update(table).where(of_shard).values(unread_since=bindparam("to")), changed)


def save_timeline(connection: Connection, pipeline: str, seen: SeenTimeline) -> None:
    """Keeps what a run saw of the table's timeline, in the place of what was seen before."""
    row = {**asdict(seen), "pipeline": pipeline, "run": seen.run[: models.RUN_LENGTH]}
    upsert(connection, models.timelines, [row], [name for name in row if name != "pipeline"])


def timeline(connection: Connection, pipeline: str) -> SeenTimeline | None:
    """What a run last saw of the table's timeline; None if none has kept it."""
    table = models.timelines
    row = connection.execute(select(*_SEEN_TIMELINE).where(table.c.pipeline == pipeline)).first()
    if row is None:
        return None
    snapshot = SeenTimeline(*row)
    return replace(snapshot, instants={time: SeenInstant(**instant) for time, instant in row.instants.items()})


def last(connection: Connection, pipeline: str, limit: int) -> list[BacklogSample]:
    """The newest sightings, newest first."""
    query = select(*_SEEN).where(_sightings.c.pipeline == pipeline).order_by(_sightings.c.at.desc()).limit(limit)
    return [BacklogSample(*row) for row in connection.execute(query)]


def since(connection: Connection, pipeline: str, at: datetime) -> list[BacklogSample]:
    """The newest sighting, and others from `at` on, newest first."""
    query = select(*_SEEN).where(_sightings.c.pipeline == pipeline, _sightings.c.at >= at)
    sightings = [BacklogSample(*row) for row in connection.execute(query.order_by(_sightings.c.at.desc()))]
    return sightings or last(connection, pipeline, 1)


def last_kept(connection: Connection, pipeline: str) -> BacklogSample | None:
    """The newest sighting for which the service said how long it keeps logs."""
    query = select(*_SEEN).where(_sightings.c.pipeline == pipeline, _sightings.c.kept.is_not(None))
    row = connection.execute(query.order_by(_sightings.c.at.desc()).limit(1)).first()
    return None if row is None else BacklogSample(*row)


def unread_since(connection: Connection, pipeline: str) -> dict[int, int]:
    """For saved shards with unread log groups: the first was received at this time (unix seconds) or later."""
    table = models.shards.c
    query = select(table.shard, table.unread_since).where(table.pipeline == pipeline, table.unread_since.is_not(None))
    return {shard: since for shard, since in connection.execute(query)}


def note_trouble(connection: Connection, found: Mapping[str, Any]) -> None:
    """See `Ledger.note_trouble`."""
    moment = now(connection)
    key = _key(found["pipeline"], found["dag_id"], found["step"])
    before = connection.execute(select(_troubles).where(key)).first()
    values = {**found, "message": plain(found["message"]), "at": moment, "since": moment, "times": 1}
    if before is not None:
        if before.error == found["error"]:
            values |= {"since": before.since, "times": before.times + 1}
        connection.execute(delete(_troubles).where(key))
    connection.execute(insert(_troubles).values(values))


def over(connection: Connection, pipeline: str, dag_id: str, step: str) -> list[Trouble]:
    """The troubles that end with the success of a step: its own, and those of transactions that are committed.

    Args:
        connection: of a transaction of the ledger's database.
        pipeline: its name.
        dag_id: of the run that went well.
        step: the step that did.
    """
    candidates = [item for item in troubles(connection, pipeline) if item.transaction or _is(item, dag_id, step)]
    ids = {item.transaction for item in candidates if item.transaction}
    table = models.transactions.c
    query = select(table.id).where(table.id.in_(ids), table.state == State.COMMITTED.value)
    committed = set(connection.execute(query).scalars()) if ids else set()
    return [item for item in candidates if _is(item, dag_id, step) or item.transaction in committed]


def end(connection: Connection, ended: Sequence[Trouble]) -> None:
    """Forgets troubles that are over, unless they came again meanwhile."""
    for item in ended:
        of_step = _key(item.pipeline, item.dag_id, item.step)
        connection.execute(delete(_troubles).where(of_step, _troubles.c.at == item.at))


def troubles(connection: Connection, pipeline: str | None = None) -> list[Trouble]:
    """Steps that failed, or wait, and have not succeeded since; of a pipeline, or of all."""
    query: Select[Any] = select(*_TROUBLE).order_by(_troubles.c.since)
    if pipeline is not None:
        query = query.where(_troubles.c.pipeline == pipeline)
    return [Trouble(*row) for row in connection.execute(query)]


def _is(found: Trouble, dag_id: str, step: str) -> bool:
    return (found.dag_id, found.step) == (dag_id, step)


def _key(pipeline: str, dag_id: str, step: str) -> Any:
    return (_troubles.c.pipeline == pipeline) & (_troubles.c.dag_id == dag_id) & (_troubles.c.step == step)
