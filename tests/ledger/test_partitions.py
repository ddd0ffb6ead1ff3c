"""Partitions of event times: open, complete, open again, and never complete before they are."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timezone

import pytest

from airflow_provider_slshudi.handover.names import BACKFILL
from airflow_provider_slshudi.ledger import partition_rows, transactions
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import (
    GONE,
    CommittedBatch,
    Completion,
    Feed,
    Kind,
    LedgerShard,
    PartitionRow,
    PartitionState,
    StartPositions,
    Transaction,
)
from airflow_provider_slshudi.planning.periods import Periods
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.planning.watermark import Mark
from tests.ledger.commits import PIPELINE, commit, complete, prepare

HOUR, LATENESS = 3_600, 600
EIGHT = int(datetime(2024, 1, 1, 8, tzinfo=timezone.utc).timestamp())
NINE, TEN, ELEVEN, TWELVE = (EIGHT + n * HOUR for n in (1, 2, 3, 4))
PREFIX = "hour="


def hour(begin: int) -> str:
    return datetime.fromtimestamp(begin, timezone.utc).strftime("%Y-%m-%d-%H")


class World:
    """A pipeline whose partitions are hours, the service's shards, and what was read of them."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.since: int | None = None
        self.lateness = LATENESS
        self.shards: dict[int, LedgerShard] = {}
        self.read: dict[int, int] = {}

    def look(self, at: int, ends: Mapping[int, int], closed: Collection[int] = (), marks: Sequence[Mark] = ()) -> None:
        """A plan's look at a time of the service, with the shards' ends; `marks` are more of shard 0."""
        for id_, end in ends.items():
            status = "readonly" if id_ in closed else "readwrite"
            self.shards[id_] = LedgerShard(id_, status, "", "", 0, end)
        self.ledger.save_shards(PIPELINE, list(self.shards.values()))
        looked = {id_: [Mark(end, at), *(marks if id_ == 0 else ())] for id_, end in ends.items()}
        self.ledger.save_look(PIPELINE, at, looked)

    def commit(self, rows: Mapping[int, int], kind: Kind = Kind.TAIL, **to: int) -> Transaction:
        """A batch with so many rows of each hour, which reads the shards up to `to`; by default to their ends."""
        return complete(self.ledger, self.prepare(rows, kind, **to))

    def prepare(self, rows: Mapping[int, int], kind: Kind = Kind.TAIL, **to: int) -> Transaction:
        """Such a batch before its commit."""
        ends = {id_: shard.end or 0 for id_, shard in self.shards.items()}
        if to:
            ends = {int(name[1:]): end for name, end in to.items()}
        begins = {id_: self.read.get(id_, 0) for id_ in ends}
        self.read |= ends
        ranges = [Range(id_, begins[id_], end) for id_, end in ends.items() if begins[id_] < end]
        partitions = {f"{PREFIX}{hour(begin)}": count for begin, count in rows.items()}
        return prepare(self.ledger, ranges, partitions, kind)

    def fold(self) -> list[Completion]:
        done: list[Completion] = []
        while True:
            folded = self.ledger.fold(PIPELINE, Periods("hour"), PREFIX, self.lateness, self.since, acts=[BACKFILL])
            done += folded.completions
            if not folded.has_more:
                return done

    def told(self) -> list[tuple[str, int]]:
        """The hours that this fold completes, each with the how manieth time."""
        return [(item.value[-2:], item.times) for item in self.fold()]

    def states(self) -> dict[str, PartitionState]:
        return {value: item.state for value, item in self.rows().items()}

    def rows(self) -> dict[str, PartitionRow]:
        return {item.value[-2:]: item for item in self.ledger.partitions(PIPELINE, 0, 1 << 40)}


@pytest.fixture
def world(ledger: Ledger) -> World:
    """Whose pipeline began before eight o'clock."""
    world = World(ledger)
    world.look(EIGHT - 60, {0: 0})
    return world


def test_an_hour_is_complete_once_all_is_committed_that_came_until_its_end_and_the_lateness(world: World) -> None:
    world.look(NINE + LATENESS - 1, {0: 10})
    world.commit({EIGHT: 10})
    assert world.told() == []
    assert world.states() == {"08": PartitionState.OPEN}
    world.look(NINE + LATENESS, {0: 15})
    assert world.told() == [], "five of its logs may not be committed"
    done = world.commit({EIGHT: 2, NINE: 3})
    (told,) = world.fold()
    assert (told.number, told.value, told.times, told.rows, told.gaps) == (1, hour(EIGHT), 1, 12, 0)
    assert (told.place, told.watermark) == (2, NINE + LATENESS)
    assert world.states() == {"08": PartitionState.COMPLETE, "09": PartitionState.OPEN}
    eight = world.rows()["08"]
    assert (eight.commits, eight.times, eight.place, eight.completed) == (
        2,
        1,
        world.ledger.newest(PIPELINE, Feed.COMMITS),
        told.at,
    )
    assert world.ledger.completions(PIPELINE, 0, 1) == [told]
    assert world.ledger.proof(PIPELINE, 1) == {0: 15}
    assert world.ledger.progress(PIPELINE) == (NINE + LATENESS, NINE + LATENESS)
    assert done.partitions == {f"{PREFIX}{hour(EIGHT)}": 2, f"{PREFIX}{hour(NINE)}": 3}
    assert world.told() == []


def test_a_late_log_opens_it_again_until_all_is_committed_that_had_come_by_then(world: World) -> None:
    world.look(NINE + LATENESS, {0: 10})
    world.commit({EIGHT: 10})
    assert world.told() == [("08", 1)]
    world.look(TEN, {0: 20})
    world.commit({EIGHT: 1, NINE: 4}, s0=15)
    assert world.told() == []
    assert (world.states()["08"], world.rows()["08"].times) == (PartitionState.REOPENED, 1)
    world.commit({NINE: 5})
    assert world.told() == [("08", 2)]
    assert (world.rows()["08"].rows, world.rows()["08"].commits) == (11, 2)


def test_a_late_log_after_which_nothing_is_unread_completes_it_at_once(world: World) -> None:
    world.look(NINE + LATENESS, {0: 10})
    world.commit({EIGHT: 10})
    world.fold()
    world.look(TEN, {0: 11})
    world.commit({EIGHT: 1})
    assert world.told() == [("08", 2)]


def test_a_value_that_names_a_later_hour_since_the_zone_was_changed_waits_for_its_end(world: World) -> None:
    world.look(TEN + LATENESS, {0: 10})
    world.commit({EIGHT: 10})
    world.fold()
    two_later = Periods("hour", "Etc/GMT+2")
    world.look(TEN + LATENESS + 60, {0: 20})
    world.commit({EIGHT: 10})
    assert world.ledger.fold(PIPELINE, two_later, PREFIX, LATENESS, None, []).completions == []
    eight = world.rows()["08"]
    assert (eight.state, eight.begin, eight.end) == (PartitionState.REOPENED, TEN, ELEVEN)


def test_a_batch_that_is_under_way_holds_it_up_however_far_others_are(world: World) -> None:
    world.look(NINE + LATENESS, {0: 10})
    slow = world.prepare({EIGHT: 10})
    world.look(TEN + LATENESS, {0: 20})
    world.commit({EIGHT: 1, NINE: 9})
    assert world.told() == []
    complete(world.ledger, slow)
    assert world.told() == [("08", 1), ("09", 1)]


def test_a_batch_that_is_given_up_holds_it_up_until_it_is_read_again(world: World) -> None:
    world.look(NINE + LATENESS, {0: 10})
    world.ledger.aborted(world.prepare({EIGHT: 10}).id, 1, "for a test")
    assert world.told() == []
    world.read[0] = 0
    world.commit({EIGHT: 10})
    assert world.told() == [("08", 1)]


def test_hours_without_a_log_are_complete_too_also_where_the_next_one_has_begun(world: World) -> None:
    world.look(NINE + LATENESS, {0: 10})
    world.commit({EIGHT: 10})
    assert world.told() == [("08", 1)]
    world.look(TWELVE + 2 * LATENESS, {0: 20})
    world.commit({TWELVE: 10})
    assert world.told() == [("09", 1), ("10", 1), ("11", 1)]
    assert world.rows()["10"].rows == 0
    world.look(TWELVE + HOUR + LATENESS, {0: 20})
    assert world.told() == [("12", 1)]


def test_hours_without_a_log_are_told_from_where_the_pipeline_began(world: World) -> None:
    world.look(TEN + LATENESS, {0: 0})
    assert world.told() == [("08", 1), ("09", 1)], "it began at 07:59, within an hour that nobody knows whole"


def test_a_pipeline_that_stood_still_for_long_tells_all_hours_since(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_rows, "_PERIODS", 10)
    world.look(EIGHT + 25 * HOUR + LATENESS, {0: 0})
    assert [item.times for item in world.fold()] == [1] * 25
    assert world.told() == []


def test_wrong_clocks_neither_complete_an_hour_early_nor_hide_others(world: World) -> None:
    world.look(NINE + LATENESS, {0: 10})
    past, future = EIGHT - 400_000 * HOUR, TEN + 1_000 * HOUR
    world.commit({past: 1, EIGHT: 8, future: 1})
    assert world.told() == [("16", 1), ("08", 1)]
    world.look(TEN + LATENESS, {0: 10})
    assert world.told() == [("09", 1)]
    assert world.rows()[hour(future)[-2:]].state is PartitionState.OPEN


def test_rows_without_a_time_are_in_no_hour(world: World) -> None:
    world.look(NINE + LATENESS, {0: 10})
    commit(world.ledger, [Range(0, 0, 10)], {f"{PREFIX}__HIVE_DEFAULT_PARTITION__": 3, f"{PREFIX}{hour(EIGHT)}": 7})
    assert world.told() == [("08", 1)]
    assert set(world.rows()) == {"08"}


def test_an_idle_shard_holds_nothing_up(world: World) -> None:
    world.look(EIGHT, {0: 0, 1: 3})
    world.commit({EIGHT: 3})
    world.look(NINE + LATENESS, {0: 50, 1: 3})
    world.commit({EIGHT: 50})
    assert world.told() == [("08", 1)]
    assert world.ledger.proof(PIPELINE, 1) == {0: 50, 1: 3}


def test_the_slowest_shard_holds_it_up(world: World) -> None:
    world.look(NINE + LATENESS, {0: 50, 1: 3})
    world.commit({EIGHT: 50}, s0=50)
    assert world.told() == []
    world.commit({EIGHT: 3}, s1=3)
    assert world.told() == [("08", 1)]


def test_a_shard_that_is_split_holds_it_up_until_it_and_its_children_are_read(world: World) -> None:
    world.look(EIGHT + 60, {0: 10})
    world.commit({EIGHT: 10})
    world.look(NINE + LATENESS, {0: 20, 1: 5, 2: 0}, closed={0})
    world.commit({EIGHT: 5}, s1=5)
    assert world.told() == []
    world.commit({EIGHT: 10}, s0=20)
    assert world.told() == [("08", 1)]


def test_children_that_no_list_named_yet_hold_it_up(world: World) -> None:
    world.look(NINE - 60, {0: 10})
    world.commit({EIGHT: 10})
    # The shard was split at 08:59:30; its children have logs of 08 that only the next list tells of.
    world.lateness = 0
    assert world.told() == []
    world.look(NINE, {0: 10, 1: 4, 2: 4}, closed={0})
    assert world.told() == []
    world.commit({EIGHT: 8})
    assert world.told() == [("08", 1)]


def test_the_first_unread_log_tells_how_far_it_is_while_much_is_unread(world: World) -> None:
    world.look(TWELVE, {0: 1_000}, marks=[Mark(100, NINE + LATENESS)])
    world.commit({EIGHT: 100}, s0=100)
    assert world.told() == [("08", 1)]
    assert world.ledger.progress(PIPELINE) == (NINE + LATENESS, TWELVE)


def test_an_hour_in_which_the_pipeline_began_is_partial(ledger: Ledger) -> None:
    world = World(ledger)
    world.look(EIGHT + 60, {0: 0})
    world.since = ledger.began(PIPELINE)
    assert world.since == EIGHT + 60
    world.look(TEN + LATENESS, {0: 10})
    world.commit({EIGHT: 4, NINE: 6})
    assert world.told() == [("09", 1)]
    assert world.states() == {"08": PartitionState.PARTIAL, "09": PartitionState.COMPLETE}
    world.commit({EIGHT: 100}, Kind.BACKFILL)
    assert world.told() == []
    assert (world.states()["08"], world.rows()["08"].rows) == (PartitionState.PARTIAL, 104)


def test_a_pipeline_begins_once_its_first_look_knew_all_ends(ledger: Ledger) -> None:
    """It was registered and listed its shards before nine, and knew their ends only after: logs between are not its."""
    ledger.save_shards(PIPELINE, [LedgerShard(0, "readwrite", "", "", 500, 500)])
    ledger.save_look(PIPELINE, NINE - 5, {0: [Mark(500, NINE - 5)]}, 12)
    assert ledger.began(PIPELINE) == NINE + 7


def test_a_pipeline_whose_lateness_is_declared_later_began_with_its_first_batch(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind = 900
    _at(monkeypatch, EIGHT - 60 - behind)
    commit(ledger, [Range(0, 0, 10)], {f"{PREFIX}{hour(EIGHT)}": 10})
    world = World(ledger)
    looked = datetime.fromtimestamp(TEN + LATENESS - behind, timezone.utc)
    monkeypatch.setattr(partition_rows, "now", lambda _: looked)
    world.look(TEN + LATENESS, {0: 10})
    world.since = ledger.began(PIPELINE)
    assert world.since == EIGHT - 60
    assert world.told() == [("08", 1), ("09", 1)]


def test_a_batch_of_a_source_that_the_file_named_before_tells_nothing_of_the_begin(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, table = "moved", "file:///lake/moved"
    ledger.register(named, "sls://shop/wrong", table)
    monkeypatch.setattr(transactions, "now", lambda _: datetime.fromtimestamp(EIGHT, timezone.utc))
    ledger.aborted(ledger.begin(named, Kind.TAIL, [Range(0, 0, 10)], "dag", "run").id, 1, "it was the wrong logstore")
    ledger.register(named, "sls://shop/right", table)
    monkeypatch.setattr(partition_rows, "now", lambda _: datetime.fromtimestamp(TEN, timezone.utc))
    ledger.save_shards(named, [LedgerShard(0, "readwrite", "", "", 500, 500)])
    ledger.save_look(named, TEN, {0: [Mark(500, TEN)]}, 10)
    assert ledger.began(named) == TEN + 10


def test_a_pipeline_that_reads_what_was_there_begins_with_its_oldest_log(ledger: Ledger) -> None:
    world = World(ledger)
    world.look(TWELVE, {0: 100}, marks=[Mark(0, EIGHT - 30)])
    assert ledger.began(PIPELINE) == EIGHT - 30
    world.look(TWELVE + 60, {0: 101})
    assert ledger.began(PIPELINE) == EIGHT - 30
    world.commit({EIGHT: 90, ELEVEN: 11})
    world.look(TWELVE + LATENESS, {0: 101})
    assert world.told() == [("08", 1), ("09", 1), ("10", 1), ("11", 1)]


def test_gaps_are_told_of_all_hours_whose_logs_they_may_have_had(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.look(NINE + LATENESS, {0: 30})
    _at(monkeypatch, NINE + LATENESS)
    commit(world.ledger, [Range(0, 0, 10), Range(0, 10, 20, gap=True)], {f"{PREFIX}{hour(EIGHT)}": 10})
    commit(world.ledger, [Range(0, 20, 30)], {f"{PREFIX}{hour(NINE)}": 10})
    (told,) = world.fold()
    assert (told.value, told.gaps) == (hour(EIGHT), 1)
    assert world.rows()["09"].gaps == 1, "it had begun when the gap was recorded"
    world.look(TWELVE + LATENESS, {0: 40})
    _at(monkeypatch, TWELVE + LATENESS)
    world.read[0] = 30
    world.commit({ELEVEN: 10})
    assert [(item.value[-2:], item.gaps) for item in world.fold()] == [("09", 1), ("10", 0), ("11", 0)]


def test_a_clock_of_the_ledger_that_is_behind_hides_no_gap(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    _at(monkeypatch, NINE + 1_200 - HOUR)
    world.look(NINE + 1_200, {0: 10})
    commit(world.ledger, [Range(0, 0, 10, gap=True)], {}, Kind.BACKFILL)
    world.read[0] = 10
    world.look(TEN + LATENESS, {0: 10})
    assert [(item.value[-2:], item.gaps) for item in world.fold()] == [("08", 1), ("09", 1)]


def test_of_many_losses_the_oldest_count_as_one_and_none_is_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_rows, "_LOSSES", 2)
    for hour_of_loss in (NINE, TEN, ELEVEN, TWELVE):
        world.ledger.lose(PIPELINE, hour_of_loss - 60, 1)
    world.look(TWELVE + HOUR + LATENESS, {0: 50})
    world.commit({begin: 10 for begin in (EIGHT, NINE, TEN, ELEVEN, TWELVE)})
    gaps = [(item.value[-2:], item.gaps) for item in world.fold()]
    assert gaps == [("08", 4), ("09", 4), ("10", 2), ("11", 1), ("12", 0)], "09 has the one of 08 as well"


def test_an_hour_that_was_lost_whole_is_not_told_as_one_without_logs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.look(TEN + LATENESS, {0: 30})
    _at(monkeypatch, TEN + LATENESS)
    commit(world.ledger, [Range(0, 0, 10, gap=True), Range(0, 10, 30)], {f"{PREFIX}{hour(NINE)}": 20})
    assert [(item.value[-2:], item.rows, item.gaps) for item in world.fold()] == [("08", 0, 1), ("09", 20, 1)]


def test_a_shard_that_is_gone_holds_it_up_until_its_gap_is_recorded(world: World) -> None:
    world.look(EIGHT + 60, {0: 10, 1: 0})
    world.commit({EIGHT: 5}, s0=5)
    del world.shards[0]
    world.ledger.save_shards(PIPELINE, [LedgerShard(0, GONE, "", "", 0, 10)])
    world.look(NINE + LATENESS, {1: 20})
    world.commit({EIGHT: 20}, s1=20)
    assert world.told() == [], "its last five logs are neither committed nor recorded as lost"
    commit(world.ledger, [Range(0, 5, 10, gap=True)])
    assert world.told() == [("08", 1)]
    assert world.rows()["08"].gaps == 1


def test_a_shard_that_is_gone_and_whose_end_nobody_knows_holds_nothing_up(world: World) -> None:
    world.look(EIGHT + 60, {0: 10, 1: 0})
    world.ledger.save_shards(PIPELINE, [LedgerShard(2, GONE, "", "", 0, None)])
    world.look(NINE + LATENESS, {0: 10, 1: 0})
    world.commit({EIGHT: 10})
    assert world.told() == [("08", 1)]


def test_a_backfill_s_hours_wait_until_it_is_over(world: World) -> None:
    world.look(TEN + LATENESS, {0: 10})
    world.commit({EIGHT: 5, NINE: 5})
    assert world.told() == [("08", 1), ("09", 1)]
    world.ledger.ask(PIPELINE, BACKFILL, "ada", "logs of 08", "dag/run", {})
    world.commit({EIGHT: 5}, Kind.BACKFILL)
    assert world.told() == []
    world.look(ELEVEN + LATENESS, {0: 20})
    world.commit({EIGHT: 1, NINE: 1, TEN: 8})
    assert world.told() == [("09", 2), ("10", 1)], "a late log of the tail does not end the wait"
    world.commit({EIGHT: 5}, Kind.BACKFILL)
    world.ledger.answer(PIPELINE, BACKFILL, "dag/run", "nothing is left to read")
    assert world.told() == [("08", 2)]
    world.ledger.ask(PIPELINE, BACKFILL, "ada", "another day's logs", "dag/run-2", {})
    world.look(TWELVE + LATENESS, {0: 21})
    world.commit({EIGHT: 1})
    assert world.told() == [("08", 3), ("11", 1)], "this backfill has not written to it"


def test_a_replay_s_hours_wait_while_one_is_live(world: World) -> None:
    world.look(NINE + LATENESS, {0: 10})
    world.commit({EIGHT: 5})
    world.fold()
    world.commit({EIGHT: 1}, Kind.REPLAY)
    other = prepare(world.ledger, kind=Kind.REPLAY)
    assert world.told() == []
    world.ledger.aborted(other.id, 1, "for a test")
    assert world.told() == [("08", 2)]


def test_a_recovered_commit_opens_the_hours_that_it_wrote_to(world: World) -> None:
    died = world.prepare({EIGHT: 1}, Kind.REPLAY)
    world.look(NINE + LATENESS, {0: 10})
    world.commit({EIGHT: 10})
    assert world.told() == [("08", 1)]
    complete(world.ledger, died)
    assert world.told() == [("08", 2)]


def test_all_commits_are_folded_before_anything_is_complete(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_rows, "_COMMITS", 5)
    world.look(NINE + LATENESS, {0: 12})
    for cursor in range(12):
        world.commit({EIGHT: 1}, s0=cursor + 1)
    first = world.ledger.fold(PIPELINE, Periods("hour"), PREFIX, LATENESS, None, [])
    assert (first.completions, first.has_more) == ([], True)
    (told,) = world.fold()
    assert (told.rows, told.place) == (12, 12)


def test_completions_are_what_a_consumer_of_partitions_is_given(world: World) -> None:
    world.ledger.subscribe(PIPELINE, "hourly", Feed.PARTITIONS, 0, 60)
    world.look(TEN + LATENESS, {0: 10})
    world.commit({EIGHT: 5, NINE: 5})
    world.fold()
    taken = world.ledger.take(PIPELINE, "hourly", 1, "run")
    assert taken is not None
    assert (taken.confirmed, taken.taken) == (0, 1)
    world.ledger.confirm(PIPELINE, "hourly", 1, taken.nonce or "")
    assert [item.value for item in world.ledger.completions(PIPELINE, 1, 9)] == [hour(NINE)]


def test_partitions_outlive_a_rebuild_and_are_not_counted_twice(world: World) -> None:
    world.look(NINE + LATENESS, {0: 10})
    done = world.commit({EIGHT: 10})
    before = world.fold()
    rebuilt(world, done)
    assert world.told() == []
    assert world.ledger.completions(PIPELINE, 0, 9) == before
    assert world.rows()["08"].rows == 10


def test_a_table_that_was_set_back_tells_its_hours_again_as_they_are_read_again(world: World) -> None:
    world.look(TEN + LATENESS, {0: 20})
    first = world.commit({EIGHT: 10}, s0=10)
    world.commit({EIGHT: 3, NINE: 7})
    assert world.told() == [("08", 1), ("09", 1)]
    assert world.states() == dict.fromkeys(("08", "09"), PartitionState.COMPLETE)
    rebuilt(world, first)
    assert world.states() == dict.fromkeys(("08", "09"), PartitionState.REOPENED), "rows of theirs are lost"
    assert world.told() == []
    world.read[0] = 10
    world.commit({EIGHT: 3, NINE: 7})
    assert world.told() == [("08", 2), ("09", 2)]


def rebuilt(world: World, *commits: Transaction) -> None:
    """The ledger is made anew of a table that has just these commits."""
    batches = [
        CommittedBatch(
            item.id,
            item.kind,
            item.instant or "",
            f"{item.instant}9",
            item.dag_id,
            item.run_id,
            tuple(world.ledger.ranges(item.id)),
            (),
            item.partitions,
        )
        for item in commits
    ]
    world.ledger.rebuild(PIPELINE, batches, StartPositions())


def _at(monkeypatch: pytest.MonkeyPatch, moment: int) -> None:
    """Has commits come at a time."""
    monkeypatch.setattr(transactions, "now", lambda _: datetime.fromtimestamp(moment, timezone.utc))
