"""A history that is made small proves as much as before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, delete, event, func, select, update

from airflow_provider_slshudi.exceptions import LedgerError
from airflow_provider_slshudi.ledger import models, reads
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.reads import StoredRange
from airflow_provider_slshudi.ledger.records import CommittedBatch, Kind, Pruned, RangeTotals, StartPositions, State
from airflow_provider_slshudi.planning.ranges import Range

PIPELINE = "clicks"
SHARDS = range(3)


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider_slshudi.ledger.prune.NEWEST", 2)
    monkeypatch.setattr("airflow_provider_slshudi.ledger.prune._RANGES", 9)


def batch(ledger: Ledger, number: int, end: State = State.COMMITTED) -> str:
    """A batch over all shards, of which the first has lost logs in every second batch."""
    begin = number * 10
    ranges = [Range(shard, begin, begin + 10, gap=shard == 0 and number % 2 == 0) for shard in SHARDS]
    id_ = ledger.begin(PIPELINE, Kind.TAIL, ranges, "dag", f"run-{number}").id
    if end is State.PLANNED:
        return id_
    ledger.opened(id_, 1, f"instant-{number}")
    totals = [RangeTotals(item, number, 100 + number, 1, None) for item in ranges if not item.gap]
    ledger.prepared(id_, 1, {"files": 1}, totals)
    if end is State.COMMITTED:
        ledger.committed(id_, 1, f"completed-{number}")
    elif end is State.ABORTED:
        ledger.aborted(id_, 1, "the worker vanished")
    return id_


def prune_all(ledger: Ledger, days: float = -1) -> list[Pruned]:
    """Prunes what ended before so many days ago; a day ahead is everything."""
    done = [ledger.prune(PIPELINE, ledger.now() - timedelta(days=days))]
    while done[-1].last is not None:
        done.append(ledger.prune(PIPELINE, ledger.now() - timedelta(days=days), done[-1].last))
    return done


@contextmanager
def after_each(engine: Engine, act: Callable[..., None]) -> Iterator[None]:
    """Somebody acts after each statement within the block."""
    event.listen(engine, "after_cursor_execute", act)
    try:
        yield
    finally:
        event.remove(engine, "after_cursor_execute", act)


def rows(engine: Engine, table: str) -> int:
    with engine.connect() as connection:
        return connection.execute(
            select(func.count()).select_from(models.metadata.tables[f"slshudi_{table}"])
        ).scalar_one()


def test_pruned_batches_are_read_as_before_and_take_a_row_each(ledger: Ledger, engine: Engine) -> None:
    ids = [batch(ledger, number) for number in range(8)]
    before = [(ledger.get(id_), ledger.ranges(id_), ledger.totals(id_)) for id_ in ids]
    recorded, covered = ledger.recorded(PIPELINE), ledger.coverage(PIPELINE)
    events = [ledger.events(id_) for id_ in ids]
    # Gaps stay as they are: 3 of the first 6 batches have one. Each batch has 4 events.
    assert prune_all(ledger) == [Pruned(3, 12, 7, ids[2]), Pruned(3, 12, 8, ids[5]), Pruned(0, 0, 0, None)]
    assert [(ledger.get(id_), ledger.ranges(id_), ledger.totals(id_)) for id_ in ids] == before
    assert (ledger.recorded(PIPELINE), ledger.coverage(PIPELINE)) == (recorded, covered)
    assert ledger.audit(PIPELINE).ok
    assert [ledger.events(id_) for id_ in ids] == events
    assert [past.events for past in ledger.history(PIPELINE, 8)] == events[::-1]
    # The newest two are as they were.
    assert (rows(engine, "range"), rows(engine, "event"), rows(engine, "packed")) == (3 + 2 * len(SHARDS), 2 * 4, 6)
    # Once more there is nothing to do, and new batches go on where the old ones ended.
    assert prune_all(ledger) == [Pruned(0, 0, 0, None)]
    batch(ledger, 8)
    assert ledger.coverage(PIPELINE) == [Range(shard, 0, 90) for shard in SHARDS]


def test_what_lives_what_is_young_and_what_was_aborted(ledger: Ledger, engine: Engine) -> None:
    aborted = batch(ledger, 0, State.ABORTED)
    live = batch(ledger, 1, State.PREPARED)
    old = batch(ledger, 2)
    for number in (3, 4):
        batch(ledger, number)
    assert prune_all(ledger, days=1) == [Pruned(0, 0, 0, None)], "none of them ended a day ago"
    ranges = ledger.ranges(aborted)
    assert prune_all(ledger) == [Pruned(2, 8, 4, old), Pruned(0, 0, 0, None)]
    assert ledger.ranges(aborted) == ranges and aborted not in {item.transaction for item in ledger.recorded(PIPELINE)}
    assert [item.range for item in ledger.recorded(PIPELINE) if item.transaction == live] == ledger.ranges(live)
    assert len(ledger.events(live)) == 3
    ledger.committed(live, 1, "completed-1")
    assert len(ledger.ranges(old)) == 3 and ledger.audit(PIPELINE).ok


def test_a_pruned_batch_that_gets_another_event_stays_as_it_is(ledger: Ledger) -> None:
    ids = [batch(ledger, number) for number in range(3)]
    prune_all(ledger)
    ranges = ledger.ranges(ids[0])
    ledger.completed_once(ids[0], "completed-later", {"removed": "completed-0"})
    assert prune_all(ledger) == [Pruned(0, 0, 0, None)]
    assert [event.what for event in ledger.events(ids[0])][-2:] == ["COMMITTED", "completed once"]
    assert (ledger.ranges(ids[0]), ledger.get(ids[0]).completed) == (ranges, "completed-later")


def test_an_audit_finds_what_is_wrong_among_packed_ranges(ledger: Ledger, engine: Engine) -> None:
    for number in range(5):
        batch(ledger, number)
    prune_all(ledger)
    table = models.coverage
    with engine.begin() as connection:
        connection.execute(update(table).where(table.c.shard == 1).values(begin_cursor=5))
    assert ledger.audit(PIPELINE).uncovered == [Range(1, 0, 5)]
    with engine.begin() as connection:
        connection.execute(update(table).where(table.c.shard == 1).values(begin_cursor=0))
        connection.execute(delete(table).where(table.c.shard == 2))
    # The oldest batch once more, in the place of another one.
    with engine.begin() as connection:
        (some,) = connection.execute(select(models.packed).order_by(models.packed.c.transaction_id).limit(1)).all()
        other = connection.execute(
            select(models.packed.c.transaction_id).order_by(models.packed.c.transaction_id.desc()).limit(1)
        ).scalar_one()
        connection.execute(
            update(models.packed).where(models.packed.c.transaction_id == other).values(ranges=some.ranges)
        )
    found = ledger.audit(PIPELINE)
    assert found.twice == [Range(1, 0, 10), Range(2, 0, 10)]
    assert Range(2, 0, 20) in found.uncovered and Range(1, 20, 30) in found.unrecorded


def test_a_rebuild_forgets_what_was_packed(ledger: Ledger, engine: Engine) -> None:
    for number in range(4):
        batch(ledger, number)
    prune_all(ledger)
    ranges = (Range(1, 0, 10), Range(2, 0, 10))
    totals = tuple(RangeTotals(item, 1, 1, None, None) for item in ranges)
    told = CommittedBatch("20260101T000000000000-aaaaaa", Kind.TAIL, "i", "c", "dag", "run", ranges, totals)
    ledger.rebuild(PIPELINE, [told], StartPositions())
    assert rows(engine, "packed") == 0
    assert [item.range for item in ledger.recorded(PIPELINE)] == list(ranges) == ledger.coverage(PIPELINE)


@pytest.mark.parametrize("look", ["recorded", "audit"])
def test_who_reads_while_ranges_are_packed_misses_none_and_sees_none_twice(
    ledger: Ledger, engine: Engine, look: str
) -> None:
    for number in range(8):
        batch(ledger, number)
    expected = getattr(ledger, look)(PIPELINE)
    pruned: list[Pruned] = []

    def prune_once(*_: Any) -> None:
        """Between the first of the reader's queries that tells of ranges and the next one."""
        if not pruned:
            pruned.append(Pruned(0, 0, 0, None))
            pruned.extend(prune_all(ledger))

    with after_each(engine, prune_once):
        assert getattr(ledger, look)(PIPELINE) == expected
    assert pruned[1].transactions == 3
    assert getattr(ledger, look)(PIPELINE) == expected


def test_who_reads_while_the_ledger_is_rebuilt_misses_none(ledger: Ledger, engine: Engine) -> None:
    ids = [batch(ledger, number) for number in range(6)]
    batches = [
        CommittedBatch(
            found.id,
            found.kind,
            str(found.instant),
            str(found.completed),
            found.dag_id,
            found.run_id,
            tuple(ledger.ranges(found.id)),
            tuple(ledger.totals(found.id)),
        )
        for found in map(ledger.get, ids)
    ]

    def of_one() -> list[Range]:
        return ledger.ranges(ids[0])

    def of_all() -> list[Range]:
        return [item.range for item in ledger.recorded(PIPELINE)]

    def told() -> bool:
        return bool(ledger.events(ids[0]))

    looks: list[Callable[[], Any]] = [of_one, of_all, told]
    for look in looks:
        expected = look()
        prune_all(ledger)
        assert rows(engine, "packed") == 4
        rebuilt: list[bool] = []

        def rebuild_once(*_: Any, rebuilt: list[bool] = rebuilt) -> None:
            if not rebuilt:
                rebuilt.append(True)
                ledger.rebuild(PIPELINE, batches, StartPositions())

        with after_each(engine, rebuild_once):
            assert look() == expected
        assert rebuilt and rows(engine, "packed") == 0
        assert look() == expected


def test_what_is_told_of_a_batch_while_it_is_packed_stays(ledger: Ledger, engine: Engine) -> None:
    if engine.dialect.name == "sqlite":
        pytest.skip("on SQLite nobody can write while a prune does, so there is nothing to lose")
    ids = [batch(ledger, number) for number in range(4)]
    other = Ledger(engine)
    told: list[bool] = []

    def tell_once(*asked: Any) -> None:
        if not told and "FROM slshudi_event" in asked[2]:
            told.append(True)
            other.note(ids[0], "late", "{}")

    with after_each(engine, tell_once):
        prune_all(ledger)
    assert told and [item.what for item in ledger.events(ids[0])][-2:] == ["COMMITTED", "late"]


def test_a_rebuild_goes_on_whatever_is_told_of_a_batch_meanwhile(ledger: Ledger, engine: Engine) -> None:
    if engine.dialect.name == "sqlite":
        pytest.skip("on SQLite nobody can write while a rebuild does, so nothing can stop it")
    id_, other = batch(ledger, 0), Ledger(engine)
    told: list[Thread] = []

    def tell() -> None:
        # It waits, and finds that the batch is another by then.
        with suppress(LedgerError):
            other.note(id_, "late", "{}")

    def tell_once(*asked: Any) -> None:
        if not told and "DELETE FROM slshudi_event" in asked[2]:
            told.append(Thread(target=tell))
            told[0].start()
            told[0].join(1)

    with after_each(engine, tell_once):
        ledger.rebuild(PIPELINE, [], StartPositions())
    assert told
    told[0].join()
    assert ledger.find(id_) is None and rows(engine, "event") == 0


def test_turns_go_on_after_the_newest_tail_is_packed(ledger: Ledger) -> None:
    batch(ledger, 0)
    for number in range(3):
        begin = 100 + 10 * number
        id_ = ledger.begin(PIPELINE, Kind.BACKFILL, [Range(0, begin, begin + 10)], "dag", f"backfill-{number}").id
        ledger.aborted(id_, 1, "not wanted")
    assert prune_all(ledger)[0].transactions == 2
    assert ledger.last_shard(PIPELINE, Kind.TAIL) == SHARDS[-1]


def test_large_batches_are_packed_one_at_a_time(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider_slshudi.ledger.prune._RANGES", 2)
    for number in range(5):
        batch(ledger, number)
    assert [found.transactions for found in prune_all(ledger)] == [1, 1, 1, 0]


def test_an_unknown_pipeline_is_told(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="knows no pipeline none-such"):
        ledger.prune("none-such", ledger.now())


_NUMBERS = st.none() | st.integers(0, (1 << 63) - 1)
_RANGES = st.builds(
    lambda shard, begin, length, *read: StoredRange("t", shard, begin, begin + length, False, *read),
    st.integers(0, 1 << 20),
    st.integers(0, 1 << 62),
    st.integers(1, 1 << 61),
    _NUMBERS,
    _NUMBERS,
    _NUMBERS,
    _NUMBERS,
    _NUMBERS,
)


@given(st.lists(_RANGES, unique_by=lambda item: item[1:3]))
def test_packed_ranges_are_what_was_packed(ranges: list[StoredRange]) -> None:
    assert reads.unpack_ranges("t", reads.pack_ranges(ranges)) == sorted(ranges, key=lambda item: item[1:3])
