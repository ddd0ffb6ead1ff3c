"""Transactions in the ledger, on a connection, and values of logs that it keeps with them for a while."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from airflow_provider_slshudi.exceptions import Fenced, IllegalTransition, LedgerError, RangeConflict
from airflow_provider_slshudi.ledger import models, pipeline_rows, reads
from airflow_provider_slshudi.ledger.coverage import cover, learn_density
from airflow_provider_slshudi.ledger.engine import now
from airflow_provider_slshudi.ledger.models import upsert
from airflow_provider_slshudi.ledger.records import LIVE, Kind, RangeTotals, State, Transaction, is_within, origins
from airflow_provider_slshudi.planning.ranges import Range, overlap, subtract
from airflow_provider_slshudi.system.points import Point, reach
from airflow_provider_slshudi.system.processes import this_process

EXAMPLES = "examples"
"""The item of a manifest that may have values of logs."""
_MOST = 100
"""Manifests that one look rewrites."""


def any_expired(connection: Connection, pipeline: str) -> bool:
    """Whether the ledger has values of the pipeline's logs whose time is over."""
    moment = now(connection)
    queries = (select(table.c.pipeline).where(_expired(table, pipeline, moment)).limit(1) for table in _TABLES)
    return any(connection.execute(query).first() is not None for query in queries)


def forget(connection: Connection, pipeline: str) -> None:
    """See `Ledger.forget_values`."""
    moment, table = now(connection), models.transactions
    query = select(table.c.id, table.c.manifest).where(_expired(table, pipeline, moment)).limit(_MOST)
    for id_, manifest in connection.execute(query).all():
        remaining_manifest = {name: value for name, value in (manifest or {}).items() if name != EXAMPLES}
        connection.execute(
            update(table).where(table.c.id == id_).values(manifest=remaining_manifest, values_until=None)
        )
    keys = models.unnamed_keys
    connection.execute(update(keys).where(_expired(keys, pipeline, moment)).values(examples=[], values_until=None))


_TABLES = (models.transactions, models.unnamed_keys)


def _expired(table: Any, pipeline: str, at: Any) -> Any:
    return (table.c.pipeline == pipeline) & (table.c.values_until <= at)


TAKEN_OVER = "taken over"
"""Name of the event of a transaction that another run took from its own."""
FAILED = "failed"
"""Name of the event of a transaction whose step failed: the step, the error's class, and the error's first sentence."""
_FIRST_SENTENCE = re.compile(r"\.\s|\n")
_SENTENCE_LENGTH, _REASON_LENGTH = 300, 1_000
_NOTHING: Mapping[str, Any] = {}
_TEXT_LENGTH = 10_000
_transactions = models.transactions


def begin(
    connection: Connection,
    pipeline: str,
    kind: Kind,
    ranges: Sequence[Range],
    dag_id: str,
    run_id: str,
    more: Mapping[str, Any] = _NOTHING,
    airflow: str = "",
) -> Transaction:
    """A new transaction, PLANNED with token 1. Ids sort by time.

    This process works on it, until it says otherwise by `release`.

    Args:
        pipeline: the pipeline's name.
        kind: what the transaction reads.
        ranges: what it reserves; a replay has none.
        dag_id: the DAG of its run.
        run_id: its run.
        more: here and below, for people alone: further items of the change's event.
        airflow: the name of the Airflow that made the run, empty if unknown.

    Raises:
        RangeConflict: a range overlaps coverage, a live transaction's ranges, or another of `ranges`.
        IllegalTransition: a transaction of this DAG run is still live.
    """
    if not ranges and kind is not Kind.REPLAY:
        raise LedgerError(f"pipeline {pipeline}: cannot begin a transaction without ranges", pipeline=pipeline)
    reads.lock_pipeline(connection, pipeline)
    for other in reads.live(connection, pipeline):
        of_run = (other.dag_id, other.run_id) == (dag_id, run_id)
        if of_run and reads.airflow_of(connection, other.id) == airflow:
            raise IllegalTransition(
                f"run {run_id} of {dag_id} has transaction {other.id} in state {other.state.value}; recovery decides "
                "that one before the run may begin another",
                transaction=other.id,
                found=other.state.value,
                wanted="COMMITTED or ABORTED",
            )
    _refuse_conflicts(pipeline, ranges, [*reads.reserved(connection, pipeline), *reads.coverage(connection, pipeline)])
    moment = now(connection)
    id_ = f"{moment:{reads.ID_TIME}}-{secrets.token_hex(3)}"
    row: dict[str, Any] = {"id": id_, "pipeline": pipeline, "kind": kind.value, "dag_id": dag_id, "run_id": run_id}
    row |= {"state": State.PLANNED.value, "token": 1, "rows": 0, "bytes": 0}
    row |= {"created": moment, "changed": moment, "heartbeat": moment, "process": this_process()}
    connection.execute(insert(_transactions).values(row))
    if ranges:
        connection.execute(insert(models.ranges), [_range_row(id_, item) for item in ranges])
    pipeline_rows.keep(connection, pipeline, dag_id)
    note(connection, id_, State.PLANNED.value, {"dag_id": dag_id, "run_id": run_id, "ranges": len(ranges), **more})
    if airflow:
        note(connection, id_, reads.AIRFLOW, airflow)
    return reads.get(connection, id_)


def _range_row(id: str, item: Range) -> dict[str, Any]:
    row = {"transaction_id": id, "shard": item.shard, "begin_cursor": item.begin, "end_cursor": item.end}
    return row | {"gap": item.gap}


def _refuse_conflicts(pipeline: str, ranges: Sequence[Range], taken: Sequence[Range]) -> None:
    clash = overlap(ranges, taken)
    ordered = sorted(ranges)
    clash += [
        later for earlier, later in pairwise(ordered) if earlier.shard == later.shard and later.begin < earlier.end
    ]
    if clash:
        raise RangeConflict(
            f"pipeline {pipeline}: already covered, reserved or asked for twice: {', '.join(map(str, clash[:10]))}"
            f"{' and more' if len(clash) > 10 else ''}; plan again",
            pipeline=pipeline,
            ranges=clash,
        )


def opened(
    connection: Connection,
    id: str,
    token: int,
    instant: str,
    more: Mapping[str, Any] = _NOTHING,
    order_digest: str | None = None,
) -> Transaction:
    """PLANNED -> OPEN: the transaction writes under `instant`, which no other transaction of its pipeline has.

    Args:
        id: the transaction.
        token: its fencing token.
        instant: Hudi's.
        more: further items of the change's event.
        order_digest: the SHA-256 of the order that the append has to find.
    """
    values = {"instant": instant, "order_digest": order_digest}
    try:
        return _change(connection, id, token, State.OPEN, values, {"instant": instant, **more})
    except IntegrityError as error:
        raise LedgerError(
            f"transaction {id}: instant {instant} belongs to another transaction of this pipeline", transaction=id
        ) from error


def prepared(
    connection: Connection,
    id: str,
    token: int,
    manifest: Mapping[str, Any],
    totals: Sequence[RangeTotals],
    gaps: Sequence[Range] = (),
    released: Sequence[Range] = (),
    values_kept: timedelta | None = None,
    partitions: Mapping[str, int] | None = None,
    filter: Mapping[str, Any] | None = None,
) -> Transaction:
    """OPEN -> PREPARED: the data is written.

    Args:
        id: the transaction.
        token: its fencing token.
        manifest: JSON.
        totals: each planned range but gaps exactly once, or each part of it that is neither of the following.
        gaps: parts of planned ranges that are gaps now.
        released: parts of planned ranges that are not the transaction's any more.
        values_kept: for how long the manifest's examples may have values of logs; None where they have none.
        partitions: rows by the path of each partition that the batch writes to; None of a table without any.
        filter: the condition by which logs were left out; None without one.

    Raises:
        LedgerError: the manifest is no JSON, or the totals are not those of the ranges.
    """
    try:
        stored = json.loads(json.dumps(manifest, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise LedgerError(f"transaction {id}: its manifest is no JSON: {error}", transaction=id) from error
    rows, bytes_ = sum(item.rows for item in totals), sum(item.bytes for item in totals)
    until = None if values_kept is None or not stored.get(EXAMPLES) else now(connection) + values_kept
    touched = None if partitions is None else dict(partitions)
    values = {"manifest": stored, "rows": rows, "bytes": bytes_, "values_until": until, "partitions": touched}
    values |= {"filter": None if filter is None else dict(filter)}

    def store(_: Transaction) -> None:
        reach(Point.RECORD_HALF)
        if gaps or released:
            _narrow(connection, id, gaps, released)
        _check_totals(id, reads.ranges(connection, id), totals)
        names = ("rows", "bytes", "first_time", "last_time", "filtered")
        range_rows = [_range_row(id, item.range) | {name: getattr(item, name) for name in names} for item in totals]
        upsert(connection, models.ranges, range_rows, names)

    return _change(connection, id, token, State.PREPARED, values, {"rows": rows, "bytes": bytes_}, store)


def _narrow(connection: Connection, id: str, gaps: Sequence[Range], released: Sequence[Range]) -> None:
    """Makes gaps of parts of a transaction's ranges, and takes others from it.

    Raises:
        LedgerError: these are not among its ranges.
    """
    before, lost = reads.ranges(connection, id), [*gaps, *released]
    planned = [item for item in before if not item.gap]
    if strange := subtract(lost, planned):
        raise LedgerError(f"transaction {id}: {strange[0]} is said to be lost, and was not planned", transaction=id)
    read = [part for item in planned for part in subtract([item], lost)]
    connection.execute(delete(models.ranges).where(models.ranges.c.transaction_id == id))
    if new_ranges := sorted([*(item for item in before if item.gap), *read, *gaps]):
        connection.execute(insert(models.ranges), [_range_row(id, item) for item in new_ranges])


def _check_totals(id: str, ranges: Sequence[Range], totals: Sequence[RangeTotals]) -> None:
    expected_ranges, counted_ranges = [item for item in ranges if not item.gap], sorted(item.range for item in totals)
    if expected_ranges != counted_ranges:
        missing = ", ".join(str(item) for item in expected_ranges if item not in counted_ranges) or "none"
        extra = (
            ", ".join(
                str(item) for item in counted_ranges if item not in expected_ranges or counted_ranges.count(item) > 1
            )
            or "none"
        )
        raise LedgerError(
            f"transaction {id}: the totals do not match its ranges; without totals: {missing}; unknown, or twice: "
            f"{extra}",
            transaction=id,
        )
    for item in totals:
        if item.rows < 0 or item.bytes < 0 or item.filtered < 0:
            raise LedgerError(
                f"transaction {id}: range {item.range} has {item.rows} rows and {item.bytes} bytes", transaction=id
            )


def committed(
    connection: Connection, id: str, token: int, completed: str, more: Mapping[str, Any] = _NOTHING
) -> Transaction:
    """PREPARED -> COMMITTED at Hudi's completion time: the ranges, gaps too, turn from reserved to covered.

    Args:
        id: the transaction's.
        token: its fencing token.
        completed: Hudi's completion time of its instant.
        more: further items of the event.
    """

    def settle(transaction: Transaction) -> None:
        reach(Point.COMMIT_HALF)
        reads.lock_pipeline(connection, transaction.pipeline)
        cover(connection, transaction.pipeline, reads.ranges(connection, id))
        learn_density(connection, transaction.pipeline, reads.totals(connection, id))
        place = reads.last_place(connection, transaction.pipeline) + 1
        connection.execute(update(_transactions).where(_transactions.c.id == id).values(place=place))
        reads.set_last_place(connection, transaction.pipeline, place)

    values = {"completed": completed}
    _change(connection, id, token, State.COMMITTED, values, values | dict(more), settle)
    return reads.get(connection, id)  # with its place


def completed_once(connection: Connection, id: str, completed: str | None, detail: Mapping[str, Any]) -> None:
    """Notes that one of an instant's completions stays; sets `completed`, if given, on a COMMITTED transaction."""
    if completed is not None:
        query = update(_transactions).where(_transactions.c.id == id, _transactions.c.state == State.COMMITTED.value)
        connection.execute(query.values(completed=completed))
    note(connection, id, "completed once", detail)


def aborted(connection: Connection, id: str, token: int, reason: str) -> Transaction:
    """Any live state -> ABORTED: the ranges are free again.

    The first reason stays, behind what led to it: the step that failed last and did not succeed later, or why another
    run took it over.
    """
    failures, take_overs = list[str](), list[str]()
    for event in reads.events(connection, id):
        if event.what == FAILED:
            failures.append(event.detail)
        elif event.what == TAKEN_OVER:
            take_overs += filter(None, [json.loads(event.detail).get("why")])
        elif event.what in State.__members__:
            failures.clear()
    error = "; ".join([*(failures or take_overs)[-1:], reason[:_REASON_LENGTH]])
    return _change(connection, id, token, State.ABORTED, {"error": plain(error)}, reason)


def failed(connection: Connection, id: str, step: str, error: str, message: str) -> None:
    """Keeps in the history of a live transaction why a step of it failed, once for each cause.

    Args:
        connection: of a transaction of the ledger's database.
        id: the transaction's; one that is decided stays as it is.
        step: the step's name.
        error: the error's class.
        message: its text, without secrets.
    """
    transaction = reads.find(connection, id)
    if transaction is None or transaction.state not in LIVE:
        return
    sentence = _FIRST_SENTENCE.split(message, maxsplit=1)[0][:_SENTENCE_LENGTH].rstrip(".")
    detail = plain(f"{step} failed: {error}: {sentence}")
    if not any((event.what, event.detail) == (FAILED, detail) for event in reads.events(connection, id)):
        note(connection, id, FAILED, detail)


def _change(
    connection: Connection,
    id: str,
    token: int,
    target: State,
    values: Mapping[str, Any],
    detail: str | Mapping[str, Any],
    then: Callable[[Transaction], None] | None = None,
) -> Transaction:
    """Sets `target` and `values` if the state allows it and the token is current; the same again does nothing."""
    moment, allowed = now(connection), origins(target)
    # A repeated abort may give its reason in other words, and a repeated record comes later.
    compared = values.keys() - {"error", "values_until"}
    hit = connection.execute(
        update(_transactions)
        .where(_matches(id, token), _transactions.c.state.in_([state.value for state in allowed]))
        .values(state=target.value, changed=moment, heartbeat=moment, **values)
    ).rowcount
    transaction = reads.get(connection, id)
    if hit == 1:
        if then is not None:
            then(transaction)
        note(connection, id, target.value, detail)
        return transaction
    _check_token(transaction, token)
    if transaction.state is not target:
        raise _illegal(transaction, target.value, allowed)
    differing = [name for name, value in values.items() if name in compared and getattr(transaction, name) != value]
    if differing:
        raise _illegal(transaction, target.value, allowed, f" with another {', '.join(differing)}")
    return transaction


def heartbeat(connection: Connection, id: str, token: int) -> None:
    """Says that this process works on a live transaction."""
    query = update(_transactions).where(_matches(id, token), _transactions.c.state.in_([state.value for state in LIVE]))
    if connection.execute(query.values(heartbeat=now(connection), process=this_process())).rowcount == 0:
        transaction = reads.get(connection, id)
        _check_token(transaction, token)
        raise _illegal(transaction, "a heartbeat", LIVE)


def rest(connection: Connection, id: str, token: int) -> None:
    """Says that this process has stopped working on a transaction; does nothing where another one works on it."""
    query = update(_transactions).where(_matches(id, token), _transactions.c.process == this_process())
    connection.execute(query.values(heartbeat=now(connection), process=None))


def take_over(connection: Connection, id: str, why: str = "") -> Transaction:
    """Gives a live transaction a new token, which fences off each run that works on it; its history says why.

    Heartbeat and process stay: as long as the transaction is live, they say whose work is to be decided.
    """
    query = update(_transactions).where(
        _transactions.c.id == id, _transactions.c.state.in_([state.value for state in LIVE])
    )
    hit = connection.execute(query.values(token=_transactions.c.token + 1)).rowcount
    transaction = reads.get(connection, id)
    if hit == 0:
        raise _illegal(transaction, "a take-over", LIVE)
    note(connection, id, TAKEN_OVER, {"token": transaction.token, **({"why": why[:_REASON_LENGTH]} if why else {})})
    return transaction


def note(connection: Connection, id: str, what: str, detail: str | Mapping[str, Any]) -> None:
    """See `Ledger.note`.

    Args:
        connection: of a transaction of the ledger's database; all else as there.
    """
    text = detail if isinstance(detail, str) else json.dumps(detail, default=str)
    row = {"transaction_id": id, "at": now(connection), "what": what, "detail": plain(text)}
    connection.execute(insert(models.events).values(row))


def reserve_act(
    connection: Connection, pipeline: str, id: str, what: str, by: str, longest: timedelta, instead: str = ""
) -> str:
    """Says who does `what` for a transaction, which one alone should do.

    It is `by`, from now on, if no other run reserved it for `longest`, or `instead` did last; else the one that did.

    Args:
        pipeline: its name.
        id: the transaction's.
        what: the act that is reserved.
        by: the run, as text.
        longest: after it another run may reserve the act.
        instead: a run whose reservation may be taken at once.
    """
    reads.lock_pipeline(connection, pipeline)
    last = next((event for event in reversed(reads.events(connection, id)) if event.what == what), None)
    if last is None:
        note(connection, id, what, by)
        return by
    if last.detail not in (instead, by) and is_within(last.at, longest, now(connection)):
        return last.detail
    # In its place: a pipeline in trouble is reserved each minute.
    table, is_it = models.events.c, {"detail": plain(by), "at": now(connection)}
    replaced = connection.execute(
        update(models.events).where(table.transaction_id == id, table.what == what).values(is_it)
    )
    if not replaced.rowcount:  # the old one is packed
        note(connection, id, what, by)
    return by


def plain(value: str) -> str:
    """Text that every database takes: PostgreSQL refuses NUL, MySQL's TEXT has a limit."""
    return value.replace("\0", "\ufffd")[:_TEXT_LENGTH]


def _matches(id: str, token: int) -> Any:
    return (_transactions.c.id == id) & (_transactions.c.token == token)


def _check_token(found: Transaction, token: int) -> None:
    if found.token != token:
        raise Fenced(
            f"transaction {found.id} changed hands: token {token} is old, {found.token} is current; "
            "stop, the new holder goes on",
            pipeline=found.pipeline,
            transaction=found.id,
            token=token,
        )


def _illegal(found: Transaction, change: str, allowed: Sequence[State], but: str = "") -> IllegalTransition:
    needed_states = " or ".join(state.value for state in allowed)
    state = found.state.value + but
    return IllegalTransition(
        f"transaction {found.id} is {state}; {change} needs {needed_states}",
        transaction=found.id,
        found=state,
        wanted=needed_states,
    )
