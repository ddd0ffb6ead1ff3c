"""Everything that the ledger has of its pipelines at one moment, for those who look at many of them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import Connection, func, select

from airflow_provider_slshudi.ledger import audit_log, backlog_samples, models, new_keys, reads
from airflow_provider_slshudi.ledger.engine import now
from airflow_provider_slshudi.ledger.records import LedgerPipeline, Standing, State, Trouble, UnnamedCount

_RECENT = 10
"""Committed batches among which the newest log is looked for: the last one may be a backfill's. Acts likewise."""


def standings(
    connection: Connection,
    newest: int,
    since: datetime,
    names: Collection[str] | None = None,
    acts: Collection[str] = (),
) -> list[Standing]:
    """What the ledger has of each pipeline, or of those named, by name; a few indexed reads for each.

    Args:
        newest: the number of transactions.
        since: how far back sightings go.
        acts: the names of the acts whose newest entries are told.
    """
    moment = now(connection)
    troubles: dict[str, list[Trouble]] = {}
    for trouble in backlog_samples.troubles(connection):
        troubles.setdefault(trouble.pipeline, []).append(trouble)
    keys = new_keys.counts(connection, names)
    registered_pipelines = {pipeline.name: pipeline for pipeline in reads.pipelines(connection)}
    # A pipeline that failed before it could be registered is all the more to be seen.
    everyone = {**{name: LedgerPipeline(name, "", "") for name in troubles}, **registered_pipelines}
    return [
        _standing(connection, moment, everyone[name], newest, since, troubles.get(name, []), keys.get(name), acts)
        for name in sorted(everyone)
        if names is None or name in names
    ]


def _standing(
    connection: Connection,
    at: datetime,
    pipeline: LedgerPipeline,
    newest: int,
    since: datetime,
    troubles: list[Trouble],
    keys: UnnamedCount | None,
    acts: Collection[str],
) -> Standing:
    name = pipeline.name
    committed = reads.latest_committed(connection, name)
    last = reads.last(connection, name, newest, None)
    # Before the coverage: a batch that commits in between is in both, not in neither.
    reserved = reads.reserved(connection, name)
    sighting = backlog_samples.last_kept(connection, name)
    return Standing(
        pipeline,
        at,
        last,
        reads.live(connection, name),
        committed,
        _last_time(connection, [item.id for item in last if item.state is State.COMMITTED][:_RECENT]),
        backlog_samples.since(connection, name, since),
        None if sighting is None else sighting.kept,
        reads.shards(connection, name),
        reads.density(connection, name),
        backlog_samples.unread_since(connection, name),
        reads.coverage(connection, name),
        reserved,
        troubles,
        keys,
        audit_log.last(connection, name, _RECENT, *acts) if acts else [],
    )


def _last_time(connection: Connection, ids: list[str]) -> int | None:
    table = models.ranges.c
    query = select(func.max(table.last_time)).where(table.transaction_id.in_(ids))
    last_time: int | None = connection.execute(query).scalar_one() if ids else None
    return last_time
