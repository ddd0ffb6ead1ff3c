"""What a read costs does not grow with history: the databases themselves say how they would read."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, insert, text, update

from airflow_provider_slshudi.ledger import models
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Feed, Kind, LedgerShard, RangeTotals, State
from airflow_provider_slshudi.planning.ranges import Range

PIPELINE = "clicks"
PAST = 2_000
GROWING = ("slshudi_transaction", "slshudi_range", "slshudi_event", "slshudi_partition", "slshudi_completion")


@pytest.fixture
def old_ledger(engine: Engine, ledger: Ledger) -> Ledger:
    """A ledger with a long past and one live transaction."""
    at = datetime.now(timezone.utc)
    same: dict[str, Any] = {"pipeline": PIPELINE, "kind": "tail", "token": 1, "dag_id": "dag", "rows": 1, "bytes": 1}
    same |= {"created": at, "changed": at, "heartbeat": at, "state": State.COMMITTED.value}
    ids = [f"20260101T{number:012d}-000000" for number in range(PAST)]
    with engine.begin() as connection:
        connection.execute(
            insert(models.transactions),
            [
                same | {"id": id_, "run_id": id_, "instant": id_, "completed": id_, "place": place}
                for place, id_ in enumerate(ids, 1)
            ],
        )
        connection.execute(
            insert(models.ranges),
            [
                {
                    "transaction_id": id_,
                    "shard": shard,
                    "begin_cursor": number,
                    "end_cursor": number + 1,
                    "gap": False,
                    "rows": 1,
                    "bytes": 1,
                }
                for number, id_ in enumerate(ids)
                for shard in (0, 1)
            ],
        )
        connection.execute(
            insert(models.events), [{"transaction_id": id_, "at": at, "what": "OPEN", "detail": ""} for id_ in ids]
        )
        connection.execute(
            insert(models.coverage),
            [{"pipeline": PIPELINE, "shard": shard, "begin_cursor": 0, "end_cursor": PAST} for shard in (0, 1)],
        )
        connection.execute(insert(models.partitions), [partition_of(number, at) for number in range(PAST)])
        connection.execute(insert(models.completions), [completion_of(number, at) for number in range(PAST)])
        connection.execute(update(models.pipelines).values(places=PAST))
        # Servers do so by themselves, at a time of theirs; SQLite never does.
        if engine.dialect.name == "postgresql":
            connection.execute(text("ANALYZE"))
    if engine.dialect.name == "mysql":
        with engine.connect() as connection:
            connection.execute(text(f"ANALYZE TABLE {', '.join(models.metadata.tables)}")).all()
    ledger.begin(PIPELINE, Kind.TAIL, [Range(0, PAST, PAST + 5)], "dag", "now")
    return ledger


def partition_of(number: int, at: datetime) -> dict[str, Any]:
    row = {"pipeline": PIPELINE, "value": f"{number}", "begin": number * 3_600, "end": (number + 1) * 3_600}
    row |= {"state": "complete", "rows": 1, "commits": 1, "times": 1, "gaps": 0, "place": number, "kind": "tail"}
    return row | {"opened": 0, "completed": at}


def completion_of(number: int, at: datetime) -> dict[str, Any]:
    row = {"pipeline": PIPELINE, "number": number + 1, "value": f"{number}", "times": 1, "place": number, "rows": 1}
    return row | {"gaps": 0, "watermark": 0, "proof": b"", "at": at}


def consumers_lag(ledger: Ledger) -> list[tuple[str, int]]:
    for name, of in (("hourly", Feed.PARTITIONS), ("upserts", Feed.COMMITS)):
        ledger.subscribe(PIPELINE, name, of, PAST - 3, 60)
    return [(item.consumer.name, item.behind) for item in ledger.lags(PIPELINE)]


def finish(ledger: Ledger) -> None:
    id_ = ledger.live(PIPELINE)[0].id
    ledger.opened(id_, 1, "now")
    ledger.heartbeat(id_, 1)
    ledger.release(id_, 1)
    ledger.prepared(id_, 1, {}, [RangeTotals(ledger.ranges(id_)[0], 1, 1, 1, 1)])
    ledger.committed(id_, 1, "now")


CALLS: dict[str, Callable[[Ledger], object]] = {
    "get": lambda ledger: ledger.get("20260101T000000000007-000000"),
    "live": lambda ledger: ledger.live(PIPELINE),
    "last": lambda ledger: ledger.last(PIPELINE, 5),
    "last of a state": lambda ledger: ledger.last(PIPELINE, 5, State.COMMITTED),
    "by_instant": lambda ledger: ledger.by_instant(PIPELINE, "20260101T000000000007-000000"),
    "latest_committed": lambda ledger: ledger.latest_committed(PIPELINE),
    "ranges": lambda ledger: ledger.ranges("20260101T000000000007-000000"),
    "totals": lambda ledger: ledger.totals("20260101T000000000007-000000"),
    "coverage": lambda ledger: ledger.coverage(PIPELINE),
    "reserved": lambda ledger: ledger.reserved(PIPELINE),
    "last_shard": lambda ledger: ledger.last_shard(PIPELINE, Kind.TAIL),
    "committed_instants": lambda ledger: ledger.committed_instants(PIPELINE, ["20260101T000000000007-000000", "now"]),
    "save_shards": lambda ledger: ledger.save_shards(PIPELINE, [LedgerShard(0, "readonly", "", "", 0)]),
    "density": lambda ledger: ledger.density(PIPELINE),
    "gaps": lambda ledger: ledger.gaps(PIPELINE, datetime.now(timezone.utc)),
    "events": lambda ledger: ledger.events("20260101T000000000007-000000"),
    "seen_timeline": lambda ledger: ledger.last_timeline(PIPELINE),
    "begin": lambda ledger: ledger.begin(PIPELINE, Kind.TAIL, [Range(1, PAST, PAST + 1)], "dag", "next"),
    "saw_keys": lambda ledger: ledger.save_new_keys(PIPELINE, ledger.live(PIPELINE)[0].id, 9, {"a": 1}, {}, {"b"}),
    "unnamed_keys": lambda ledger: ledger.unnamed_keys([PIPELINE], datetime.now(timezone.utc)),
    "newest_begin": lambda ledger: ledger.newest_begin(PIPELINE, PAST * 3_600),
    "partitions": lambda ledger: ledger.partitions(PIPELINE, 0, 24 * 3_600),
    "completions_of": lambda ledger: ledger.completions_of(PIPELINE, "7", 20),
    "lags": consumers_lag,
    "a transaction to its end": finish,
}


@pytest.mark.parametrize("name", CALLS)
def test_no_call_reads_the_history(engine: Engine, old_ledger: Ledger, name: str) -> None:
    seen: list[tuple[str, Any]] = []

    def listen(_connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:
        if statement.split()[0] in ("SELECT", "UPDATE", "DELETE"):
            seen.append((statement, parameters[0] if many else parameters))

    event.listen(engine, "before_cursor_execute", listen)
    try:
        CALLS[name](old_ledger)
    finally:
        event.remove(engine, "before_cursor_execute", listen)
    assert seen
    reads_much = READS_MUCH[engine.dialect.name]
    with engine.connect() as connection:
        bad = [found for statement, parameters in seen for found in reads_much(connection, statement, parameters)]
        connection.rollback()
    assert bad == []


def sqlite_reads_much(connection: Connection, statement: str, parameters: Any) -> list[str]:
    """Steps of the plan that scan a growing table, sort, or know no more than the pipeline without a limit."""
    plan = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]
    marks = ("SCAN ",) if "LIMIT" in statement else ("SCAN ", "(pipeline=?)")
    bad = [step for step in plan if any(mark in step for mark in marks) and any(table in step for table in GROWING)]
    return bad + [step for step in plan if "TEMP B-TREE" in step and "LIMIT" in statement]


def postgresql_reads_much(connection: Connection, statement: str, parameters: Any) -> list[str]:
    """Steps that really read, or read and dropped, more than a handful of rows."""
    plan = [row[0] for row in connection.exec_driver_sql(f"EXPLAIN (ANALYZE) {statement}", parameters)]
    count = re.compile(r"(?:actual time=\S+ rows=|Rows Removed by Filter: )(\d+)")
    return [step for step in plan if any(int(number) > 50 for number in count.findall(step))]


def mariadb_reads_much(connection: Connection, statement: str, parameters: Any) -> list[str]:
    """Tables of which it really read more than a handful of rows."""
    rows = connection.exec_driver_sql(f"ANALYZE {statement}", parameters).mappings()
    return [f"{row['table']}: {row['r_rows']} rows" for row in rows if float(row["r_rows"] or 0) > 50]


READS_MUCH = {"sqlite": sqlite_reads_much, "postgresql": postgresql_reads_much, "mysql": mariadb_reads_much}


def test_the_past_is_still_told_right(old_ledger: Ledger) -> None:
    assert [transaction.run_id for transaction in old_ledger.last(PIPELINE, 2)] == [
        "now",
        f"20260101T{PAST - 1:012d}-000000",
    ]
    assert len(old_ledger.live(PIPELINE)) == 1
    latest = old_ledger.latest_committed(PIPELINE)
    assert latest is not None
    assert latest.completed == f"20260101T{PAST - 1:012d}-000000"
    assert old_ledger.reserved(PIPELINE) == [Range(0, PAST, PAST + 5)]
