"""Consumers of a table and their places, on a connection: what is taken, and what is confirmed."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, delete, func, insert, or_, select, update

from airflow_provider_slshudi.exceptions import ConsumerBehind, ConsumerFenced, ConsumerUnderWay, LedgerError
from airflow_provider_slshudi.ledger import models, partition_rows, reads
from airflow_provider_slshudi.ledger.engine import now
from airflow_provider_slshudi.ledger.records import Consumer, ConsumerLag, Feed, Hold, Transaction
from airflow_provider_slshudi.system.processes import this_process

_consumers, _transactions, _completions = models.consumers, models.transactions, models.completions
_CONSUMER = models.columns(_consumers, Consumer)


def commits(connection: Connection, pipeline: str, after: int, until: int) -> list[Transaction]:
    """The committed transactions with places (after, until], in order, with their manifests.

    Args:
        connection: to the ledger.
        pipeline: its name.
        after: the place before the first of them.
        until: the place of the last of them.
    """
    table = _transactions.c
    query = select(_transactions).where(table.pipeline == pipeline, table.place > after, table.place <= until)
    return reads.transactions_of(connection, query.order_by(table.place))


def newest(connection: Connection, pipeline: str, of: Feed) -> int:
    """The place of the newest commit, or the number of the newest completion."""
    newest_of = reads.last_place if of is Feed.COMMITS else partition_rows.last_number
    return newest_of(connection, pipeline)


def consumers(connection: Connection, pipeline: str | None = None) -> list[Consumer]:
    """The consumers of a pipeline, or of all, by name."""
    query = select(*_CONSUMER).order_by(_consumers.c.pipeline, _consumers.c.name)
    return _all(connection, query if pipeline is None else query.where(_consumers.c.pipeline == pipeline))


def lags(connection: Connection, pipeline: str | None = None) -> list[ConsumerLag]:
    """How far the consumers of a pipeline, or of all, are behind, by name; an indexed look for each that is."""
    newest_of: dict[tuple[str, Feed], int] = {}
    consumer_lags = []
    for item in consumers(connection, pipeline):
        feed = item.pipeline, item.of
        if feed not in newest_of:
            newest_of[feed] = newest(connection, *feed)
        behind = max(newest_of[feed] - item.confirmed, 0)
        consumer_lags.append(ConsumerLag(item, behind, _since(connection, item) if behind else None))
    return consumer_lags


def _since(connection: Connection, consumer: Consumer) -> datetime | None:
    """When the ledger heard of the first commit or completion that the consumer has not confirmed."""
    commits_or_completions = (
        (_transactions.c.place, _transactions.c.changed),
        (_completions.c.number, _completions.c.at),
    )
    place, time = commits_or_completions[consumer.of is Feed.PARTITIONS]
    query = select(time).where(place.table.c.pipeline == consumer.pipeline, place > consumer.confirmed)
    moment: datetime | None = connection.execute(query.order_by(place).limit(1)).scalar()
    return moment


def consumer(connection: Connection, pipeline: str, name: str) -> Consumer | None:
    """The consumer; None where there is none of that name."""
    return next(iter(_all(connection, select(*_CONSUMER).where(_is(pipeline, name)))), None)


def subscribe(connection: Connection, pipeline: str, name: str, of: Feed, after: int | None, hold: int) -> Consumer:
    """Adds a consumer where there is none of that name, and sets for how long services wait for it.

    Args:
        connection: of a writing transaction.
        pipeline: its name.
        name: the consumer's.
        of: what it is given.
        after: the place or number after which it begins; None: after the newest.
        hold: seconds.

    Raises:
        LedgerError: one of that name is given something else; or `after` is no place, `name` no name.
    """
    if not 0 < len(name) <= models.NAME_LENGTH or not name.isprintable():
        message = f"pipeline {pipeline}: consumer {name!r}: expected 1 to {models.NAME_LENGTH} printable characters"
        raise LedgerError(message, pipeline=pipeline)
    reads.lock_pipeline(connection, pipeline)
    stored = consumer(connection, pipeline, name)
    if stored is not None:
        if stored.of is not of:
            raise LedgerError(
                f"pipeline {pipeline}: consumer {name} is given {stored.of.value}, not {of.value}: choose another name",
                pipeline=pipeline,
            )
        if stored.hold != hold:
            connection.execute(update(_consumers).where(_is(pipeline, name)).values(hold=hold))
        return _get(connection, pipeline, name)
    last, moment = newest(connection, pipeline, of), now(connection)
    row = {"pipeline": pipeline, "name": name, "of": of.value, "hold": hold, "created": moment, "changed": moment}
    connection.execute(
        insert(_consumers).values(**row, confirmed=_place(pipeline, last, last if after is None else after))
    )
    return _get(connection, pipeline, name)


def take(
    connection: Connection,
    pipeline: str,
    name: str,
    most: int,
    taker: str,
    instead: str | None = None,
) -> Consumer | None:
    """Gives a consumer what it has not confirmed: the same as before if it was given some, else up to `most` more.

    Returns None where there is nothing.

    Args:
        connection: of a writing transaction.
        pipeline: its name.
        name: the consumer's.
        most: how many at most.
        taker: the run that takes, as text.
        instead: the nonce under which it was taken by a run that is over.

    Raises:
        ConsumerUnderWay: another run has taken it, and not `instead`.
        ConsumerBehind: a clean has deleted rows as some of these commits wrote them.
        LedgerError: there is no such consumer.
    """
    reads.lock_pipeline(connection, pipeline)
    stored = _get(connection, pipeline, name)
    until = stored.taken
    if until is None:
        until = min(newest(connection, pipeline, stored.of), stored.confirmed + most)
        if until <= stored.confirmed:
            return None
    elif stored.taker != taker and stored.nonce != instead:
        raise ConsumerUnderWay(
            f"consumer {name} of pipeline {pipeline}: run {stored.taker} has taken {stored.span} and not confirmed it; "
            "it is given to another run once that one is over",
            pipeline=pipeline,
            consumer=name,
            taker=stored.taker or "",
        )
    if stored.of is Feed.COMMITS:
        _require_kept(connection, stored, until)
    values: dict[str, Any] = {"taken": until, "nonce": uuid4().hex, "taker": taker, "process": this_process()}
    values["changed"] = now(connection)
    connection.execute(update(_consumers).where(_is(pipeline, name)).values(values))
    return _get(connection, pipeline, name)


def _require_kept(connection: Connection, consumer: Consumer, until: int) -> None:
    """Refuses commits after the consumer's place, and until another, of which a clean has deleted something."""
    table, pipelines = _transactions.c, models.pipelines.c
    cleaned = select(pipelines.cleaned).where(pipelines.name == consumer.pipeline).scalar_subquery()
    lost = (table.pipeline == consumer.pipeline) & (table.place > consumer.confirmed) & (table.instant < cleaned)
    first = connection.execute(select(func.min(table.place)).where(lost, table.place <= until)).scalar()
    if first is None:
        return
    last = int(connection.execute(select(func.max(table.place)).where(lost)).scalar_one())
    raise ConsumerBehind(
        f"consumer {consumer.name} of pipeline {consumer.pipeline} stands at place {consumer.confirmed}: cleaning "
        f"waits {timedelta(seconds=consumer.hold)} for it, and has deleted rows as commits of the places {first} to "
        f"{last} wrote them, before later commits changed these rows. Commits behind place {last} can be read in full; "
        "of those before it the rows that were not changed since are still in the table: read them by "
        f"`{_condition(connection, consumer, last)}` if the consumer needs them, then let it go on with `slshudi "
        f"consumers move {consumer.pipeline} {consumer.name} --to {last} --reason TEXT`",
        pipeline=consumer.pipeline,
        consumer=consumer.name,
        place=last + 1,
    )


def _condition(connection: Connection, consumer: Consumer, last: int) -> str:
    """SQL for the rows of just the commits after the consumer's place, until another: places are not in their order."""
    table = _transactions.c
    of_pipeline, meant = table.pipeline == consumer.pipeline, table.place.between(consumer.confirmed + 1, last)
    span = select(func.min(table.instant), func.max(table.instant)).where(of_pipeline, meant)
    oldest, latest = connection.execute(span).one()
    within = select(table.instant).where(of_pipeline, table.instant.between(oldest, latest), table.place.is_not(None))
    others = connection.execute(within.where(~meant).order_by(table.instant)).scalars().all()
    condition = f"_hoodie_commit_time BETWEEN '{oldest}' AND '{latest}'"
    return condition + (f" AND _hoodie_commit_time NOT IN ({', '.join(map(repr, others))})" if others else "")


def holds(connection: Connection, pipeline: str) -> list[Hold]:
    """The consumers of commits that have not confirmed all of them, by name."""
    table, moment, waiting = _transactions.c, now(connection), []
    for item in consumers(connection, pipeline):
        lacking = (table.pipeline == pipeline) & (table.place > item.confirmed)
        query = select(table.place, table.changed).where(lacking).order_by(table.place).limit(1)
        first = None if item.of is not Feed.COMMITS else connection.execute(query).first()
        if first is None:
            continue
        hold = timedelta(seconds=item.hold)
        oldest = connection.execute(select(func.min(table.instant)).where(lacking, table.changed > moment - hold))
        used = (moment - first.changed) / hold if hold else 1.0
        waiting.append(Hold(item.name, first.place, first.changed, first.changed + hold, oldest.scalar(), used))
    return waiting


def save_cleaned(connection: Connection, pipeline: str, instant: str) -> None:
    """Keeps that, of commits before an instant, a clean may have deleted rows as they were before later commits.

    Args:
        connection: of a writing transaction.
        pipeline: its name.
        instant: Hudi's; an earlier one than the ledger has changes nothing.
    """
    table = models.pipelines
    is_later = or_(table.c.cleaned.is_(None), table.c.cleaned < instant)
    connection.execute(update(table).where(table.c.name == pipeline, is_later).values(cleaned=instant))


def confirm(connection: Connection, pipeline: str, name: str, last: int, nonce: str) -> Consumer:
    """Moves a consumer's place behind what it took; the same again does nothing.

    Args:
        connection: of a writing transaction.
        pipeline: its name.
        name: the consumer's.
        last: the last place or number that was taken.
        nonce: under which it was taken.

    Raises:
        ConsumerFenced: another run has taken it since, or it was set back.
        LedgerError: there is no such consumer.
    """
    reads.lock_pipeline(connection, pipeline)
    values = {"confirmed": last, "taken": None, "changed": now(connection)}
    of_take = _is(pipeline, name) & (_consumers.c.taken == last) & (_consumers.c.nonce == nonce)
    hit = connection.execute(update(_consumers).where(of_take).values(values)).rowcount
    stored = _get(connection, pipeline, name)
    if hit or (stored.taken is None and stored.confirmed == last and stored.nonce == nonce):
        return stored
    if stored.confirmed >= last:
        # Also where this run's first confirmation was not answered, and another run took what follows.
        why = f"it stands at {stored.confirmed}. This run, another one or a person has set it behind that before"
    elif stored.taken is not None:
        why = f"run {stored.taker} has taken it. Nothing was confirmed; the run that has it now confirms it"
    else:
        why = f"it stands at {stored.confirmed}. Nothing was confirmed; the next run is given it"
    raise ConsumerFenced(
        f"consumer {name} of pipeline {pipeline}: what was taken up to {last} is not this run's any more: {why}",
        pipeline=pipeline,
        consumer=name,
    )


def move(connection: Connection, pipeline: str, name: str, to: int | None) -> Consumer:
    """Sets a consumer's place, so that it is given what follows; what was taken is confirmed by no run.

    Args:
        connection: of a writing transaction.
        pipeline: its name.
        name: the consumer's.
        to: the place or number after which it goes on; None: after the newest.

    Raises:
        LedgerError: there is no such consumer, or place.
    """
    reads.lock_pipeline(connection, pipeline)
    last = newest(connection, pipeline, _get(connection, pipeline, name).of)
    place = _place(pipeline, last, last if to is None else to)
    values = {"confirmed": place, "taken": None, "nonce": None, "taker": None, "changed": now(connection)}
    connection.execute(update(_consumers).where(_is(pipeline, name)).values(values))
    return _get(connection, pipeline, name)


def forget(connection: Connection, pipeline: str, name: str) -> None:
    """Removes a consumer; raises LedgerError where there is none."""
    _get(connection, pipeline, name)
    connection.execute(delete(_consumers).where(_is(pipeline, name)))


def _place(pipeline: str, newest: int, after: int) -> int:
    if 0 <= after <= newest:
        return after
    raise LedgerError(f"pipeline {pipeline}: {after} is no place: expected 0 to {newest}", pipeline=pipeline)


def _get(connection: Connection, pipeline: str, name: str) -> Consumer:
    stored = consumer(connection, pipeline, name)
    if stored is None:
        raise LedgerError(f"pipeline {pipeline} has no consumer {name}", pipeline=pipeline)
    return stored


def _is(pipeline: str, name: str) -> ColumnElement[bool]:
    return (_consumers.c.pipeline == pipeline) & (_consumers.c.name == name)


def _all(connection: Connection, query: Any) -> list[Consumer]:
    return [Consumer(**{**row._mapping, "of": Feed(row.of)}) for row in connection.execute(query)]
