"""A shard was split, and the service deleted it once its logs had expired: what nobody read of it is noticed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from airflow_provider_slshudi.exceptions import DataExpired, PipelineConflict, SourceRefused, TableError
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import GONE, LATE, LedgerShard, State, Transaction
from airflow_provider_slshudi.local.process import LocalSls
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.sls.answers import Shard
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.transaction import plan, steps
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.settle import settle
from tests.scenarios import PROJECT, Scenario

Make = Callable[..., Scenario]
NAME = "ad_events"
HALF = "8" + "0" * 31


@pytest.fixture
def pipeline(scenario: Make) -> Scenario:
    """One shard with a hundred logs that a plan has seen and nobody has read."""
    made = scenario(shards=1)
    made.put(100)
    look(made, "run-0")
    return made


def look(pipeline: Scenario, run_id: str) -> list[Range]:
    """A batch that is planned and given up; its ranges."""
    planned = plan.tail(pipeline.by(run_id))
    ranges = [] if planned is None else pipeline.work.ledger.ranges(planned.id)
    settle(pipeline.by(f"{run_id}-settle"), lambda run: True)
    return ranges


def split(pipeline: Scenario) -> None:
    pipeline.client.split_shard(PROJECT, pipeline.work.pipeline.source.logstore, 0, HALF)


def vanish(pipeline: Scenario, shard: int = 0) -> None:
    """What the service does once all of a closed shard has expired."""
    pipeline.client.delete_shard(PROJECT, pipeline.work.pipeline.source.logstore, shard)


def known(pipeline: Scenario) -> dict[int, LedgerShard]:
    return {shard.id: shard for shard in pipeline.work.ledger.shards(NAME)}


def skipping(pipeline: Scenario) -> Scenario:
    return with_source(pipeline, on_expired="skip")


def test_what_was_unread_of_a_closed_shard_is_named_to_the_cursor_and_skipped_as_a_gap(pipeline: Scenario) -> None:
    pipeline.put(50, first=100)
    split(pipeline)
    (unread,) = look(pipeline, "run-1")
    assert known(pipeline)[0].end == unread.end, "the end is asked anew at every plan"
    pipeline.put(20, first=150)
    vanish(pipeline)
    with pytest.raises(DataExpired, match="no longer holds") as lost:
        plan.tail(pipeline.by("run-2"))
    assert (lost.value.shard, lost.value.begin, lost.value.end, lost.value.more) == (0, unread.begin, unread.end, False)
    with pytest.raises(DataExpired):
        plan.tail(pipeline.by("run-3"))

    committed = skipping(pipeline).batch("run-4")
    assert committed.rows == 20
    assert Range(0, unread.begin, unread.end, gap=True) in pipeline.work.ledger.ranges(committed.id)
    assert plan.tail(pipeline.by("run-5")) is None
    assert verify(pipeline.work).ok


def test_a_gap_that_was_given_up_is_planned_again(pipeline: Scenario) -> None:
    split(pipeline)
    (unread,) = look(pipeline, "run-1")
    vanish(pipeline)
    gap = replace(unread, gap=True)
    assert look(skipping(pipeline), "run-2") == [gap]
    assert known(pipeline)[0].status == GONE
    assert look(skipping(pipeline), "run-3") == [gap]
    with pytest.raises(DataExpired):
        plan.tail(pipeline.by("run-4"))


def test_of_a_shard_that_was_open_when_it_was_last_seen_nobody_knows_what_followed(pipeline: Scenario) -> None:
    read = pipeline.batch("run-1")
    (covered,) = pipeline.work.ledger.ranges(read.id)
    pipeline.put(10, first=100)
    split(pipeline)
    vanish(pipeline)
    with pytest.raises(DataExpired, match=f"read up to cursor {covered.end}, .* still open then") as lost:
        plan.tail(pipeline.by("run-2"))
    assert (lost.value.begin, lost.value.end, lost.value.more) == (covered.end, covered.end, True)
    assert known(pipeline)[0].status == "readwrite", "nothing is accepted before somebody says so"

    assert plan.tail(skipping(pipeline).by("run-3")) is None
    assert plan.tail(pipeline.by("run-4")) is None


def test_a_shard_that_was_read_to_its_end_goes_without_a_word_and_is_not_asked_for_any_more(
    pipeline: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    split(pipeline)
    pipeline.batch("run-1")
    vanish(pipeline)
    assert plan.tail(pipeline.by("run-2")) is None
    assert known(pipeline)[0].status == GONE
    service = pipeline.work.connect()
    monkeypatch.setattr(service, "end_if_there", None)
    assert plan.tail(pipeline.by("run-3", connect=lambda: service)) is None


def test_a_shard_that_a_listing_leaves_out_and_that_answers_is_there(
    pipeline: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    split(pipeline)
    (unread,) = look(pipeline, "run-1")
    service = pipeline.work.connect()
    whole = service.shards()
    monkeypatch.setattr(service, "shards", lambda: [shard for shard in whole if shard.id != 0])
    planned = plan.tail(pipeline.by("run-2", connect=lambda: service))
    assert planned is not None
    assert pipeline.work.ledger.ranges(planned.id) == [unread]


def test_a_shard_of_a_ledger_that_never_kept_its_end_is_not_believed_to_be_read(pipeline: Scenario) -> None:
    split(pipeline)
    pipeline.batch("run-1")
    (shard,) = [shard for shard in known(pipeline).values() if shard.id == 0]
    pipeline.work.ledger.save_shards(NAME, [replace(shard, end=None)])  # of before ends were kept
    vanish(pipeline)
    with pytest.raises(DataExpired) as lost:
        plan.tail(pipeline.by("run-2"))
    assert lost.value.more


def test_a_backfill_keeps_the_ends_of_all_shards_too(pipeline: Scenario) -> None:
    pipeline.put(10, first=100)
    split(pipeline)
    begin = pipeline.work.connect().begin(0)
    assert plan.backfill(pipeline.by("backfill"), plan.BackfillRequest(cursors={0: (begin, begin + 1)})) is not None
    assert known(pipeline)[0].end == pipeline.work.connect().end(0)
    assert known(pipeline)[0].end_known


class Aged:
    """The pipeline's service, whose new shards were made `days` ago, and lost their first logs since."""

    def __init__(
        self, service: LogService, known: set[int], days: float, ttl: int | None, changed: float = 100.0
    ) -> None:
        self._service, self._known, self._made, self._ttl = service, known, int(time.time() - days * 86_400), ttl
        self._changed = int(time.time() - changed * 86_400)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)

    def of_shard(self, shard: int) -> Aged:
        return self

    def shards(self) -> list[Shard]:
        listed = self._service.shards()
        return [shard if shard.id in self._known else replace(shard, created=self._made) for shard in listed]

    def begin(self, shard: int) -> int:
        begin = self._service.begin(shard)
        return begin if shard in self._known else min(begin + 1, self._service.end(shard))

    def retention(self) -> tuple[int, int]:
        if self._ttl is None:
            raise SourceRefused("ads/events: not for this key", project="ads", logstore="events", code="Unauthorized")
        return self._ttl * 86_400, self._changed


@pytest.mark.parametrize(
    ("days", "ttl", "changed"),
    [(3.0, 3, 100.0), (40.0, 30, 100.0), (2.0, None, 100.0), (5.0, 30, 0.0)],
    ids=["at the ttl", "after it", "nobody may ask", "ttl raised since"],
)
def test_what_a_split_shards_children_lost_before_a_plan_saw_them_is_expired_data(
    pipeline: Scenario, days: float, ttl: int | None, changed: float
) -> None:
    """The pipeline stood still longer than logs are kept; of the parent nothing is unread."""
    pipeline.batch("run-1")
    split(pipeline)
    pipeline.put(60, first=100)
    service = cast(LogService, Aged(pipeline.work.connect(), {0}, days, ttl, changed))
    begin = pipeline.work.connect().begin(1) + 1
    work = pipeline.by("run-2", connect=lambda: service)
    oldest = service.begin(0)
    read = plan.BackfillRequest(cursors={0: (oldest, oldest + 1)})
    for _ in range(2):  # a backfill in between makes the shard no more known
        with pytest.raises(DataExpired, match=r"shard 1 was not seen before") as lost:
            plan.tail(work)
        assert (lost.value.shard, lost.value.begin, lost.value.end, lost.value.unseen) == (1, begin, begin, True)
        assert plan.backfill(work, read) is None
        assert known(pipeline)[1].status == LATE

    accepting = skipping(replace(pipeline, work=work))
    planned = plan.tail(accepting.work)
    assert planned is not None
    assert {item.shard for item in pipeline.work.ledger.ranges(planned.id)} == {1, 2}
    settle(accepting.by("run-3"), lambda run: True)
    assert plan.tail(pipeline.by("run-4", connect=lambda: service)) is not None, "it is accepted once"


@pytest.mark.parametrize(("days", "ttl"), [(0.5, None), (2.0, 3), (29.0, 30)])
def test_children_that_are_younger_than_what_the_logstore_keeps_have_lost_nothing(
    pipeline: Scenario, days: float, ttl: int | None
) -> None:
    pipeline.batch("run-1")
    split(pipeline)
    pipeline.put(60, first=100)
    service = cast(LogService, Aged(pipeline.work.connect(), {0}, days, ttl))
    assert plan.tail(pipeline.by("run-2", connect=lambda: service)) is not None
    assert known(pipeline).keys() == {0, 1, 2}


def test_another_logstore_of_the_same_name_changes_nothing_that_is_known(
    pipeline: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.batch("run-1")
    before = known(pipeline)
    service = pipeline.work.connect()
    monkeypatch.setattr(service, "shards", lambda: [Shard(0, "readonly", "0" * 32, "f" * 32, 0)])
    monkeypatch.setattr(service, "end", lambda shard: 7)
    work = pipeline.by("run-2", connect=lambda: service)
    for ask in (plan.tail, lambda work: plan.backfill(work, plan.BackfillRequest(cursors={0: (1, 2)}))):
        with pytest.raises(PipelineConflict, match="ends at cursor 7"):
            ask(work)
    assert known(pipeline) == before


def test_a_late_shard_is_not_forgotten_once_the_service_deletes_it(pipeline: Scenario) -> None:
    pipeline.batch("run-1")
    split(pipeline)
    service = cast(LogService, Aged(pipeline.work.connect(), {0}, 3, 3))
    with pytest.raises(DataExpired) as lost:
        plan.tail(pipeline.by("run-2", connect=lambda: service))
    assert (lost.value.shard, known(pipeline)[1].status) == (1, LATE)
    pipeline.client.split_shard(PROJECT, pipeline.work.pipeline.source.logstore, 1, "4" + "0" * 31)
    vanish(pipeline, 1)
    with pytest.raises(DataExpired) as lost:
        plan.tail(pipeline.by("run-3", connect=lambda: service))
    assert (lost.value.shard, lost.value.more) == (1, True)


def test_a_late_shard_stays_late_when_a_listing_leaves_it_out(pipeline: Scenario) -> None:
    pipeline.batch("run-1")
    split(pipeline)
    pipeline.put(60, first=100)
    service = cast(LogService, Aged(pipeline.work.connect(), {0}, 3, 3))
    with pytest.raises(DataExpired):
        plan.tail(pipeline.by("run-2", connect=lambda: service))
    partly = cast(LogService, Unlisted(service, {1}))
    with pytest.raises(DataExpired) as lost:
        plan.tail(pipeline.by("run-3", connect=lambda: partly))
    assert (lost.value.shard, lost.value.unseen) == (1, True)
    assert known(pipeline)[1].status == LATE


class Unlisted:
    """A service whose list lacks shards that answer."""

    def __init__(self, service: LogService, unlisted: set[int]) -> None:
        self._service, self._unlisted = service, unlisted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)

    def shards(self) -> list[Shard]:
        return [shard for shard in self._service.shards() if shard.id not in self._unlisted]


def finish(work: Work, planned: Transaction) -> Transaction:
    held = planned.id, planned.token
    steps.open_instant(work, *held)
    steps.append(work, *held)
    steps.record(work, *held)
    return steps.commit(work, *held)


def by_another(pipeline: Scenario, ledger: Ledger) -> Scenario:
    return replace(pipeline, work=replace(pipeline.work, ledger=ledger))


def with_source(pipeline: Scenario, **changes: Any) -> Scenario:
    source = pipeline.work.pipeline.source.model_copy(update=changes)
    return replace(
        pipeline, work=replace(pipeline.work, pipeline=pipeline.work.pipeline.model_copy(update={"source": source}))
    )


def kept_by(pipeline: Scenario) -> Path:
    """What the table keeps of the pipeline's shards."""
    return Path(pipeline.work.storage.full(f".hoodie/slshudi/shards/{pipeline.work.pipeline.name}.json"))


def test_what_was_unread_before_the_first_committed_cursor_is_read_after_a_rebuild(
    pipeline: Scenario, another_ledger: Ledger
) -> None:
    """A backfill of the newest logs was committed before the tail came to them."""
    service = pipeline.work.connect()
    begin, end = service.begin(0), service.end(0)
    request = plan.BackfillRequest(cursors={0: (end - 3, end)})
    planned = plan.backfill(pipeline.by("backfill"), request)
    assert planned is not None
    assert finish(pipeline.by("backfill"), planned).rows == 30

    after = by_another(pipeline, another_ledger)
    rebuild(after.by("rebuild"))
    assert known(after)[0].first == begin
    assert after.batch("run-1").rows == 70
    assert verify(after.work).ok


def test_where_nothing_was_committed_another_ledger_begins_where_the_first_one_did(
    scenario: Make, another_ledger: Ledger
) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(10)
    pipeline = with_source(pipeline, start="end")
    assert plan.tail(pipeline.by("run-0")) is None
    pipeline.put(20, first=10)
    pipeline.open(pipeline.by("run-1"))

    after = by_another(pipeline, another_ledger)
    pipeline.put(30, first=30)
    rebuild(after.by("rebuild"))
    assert after.batch("run-2").rows == 50


@pytest.fixture
def lost(scenario: Make, another_ledger: Ledger) -> Scenario:
    """By a ledger that is empty: a shard that only the table knows was deleted, and two others are there.

    Nothing was committed, so no rebuild is asked for.
    """
    pipeline = scenario(shards=1)
    pipeline.put(10)
    opened = pipeline.open(pipeline.by("run-1"))
    settle(pipeline.by("run-2"), lambda run: True)
    assert pipeline.work.ledger.get(opened.id).state is State.ABORTED
    split(pipeline)
    pipeline.put(10, first=10)
    vanish(pipeline)
    return by_another(pipeline, another_ledger)


def test_a_shard_that_a_lost_ledger_knew_alone_is_said_until_that_is_accepted(lost: Scenario) -> None:
    for run in ("run-3", "run-4"):
        with pytest.raises(DataExpired) as expired:
            plan.tail(lost.by(run))
        assert (expired.value.shard, expired.value.more) == (0, True)
    assert skipping(lost).batch("run-5").rows == 10


def test_a_shard_that_a_lost_ledger_knew_alone_is_said_though_a_backfill_came_first(lost: Scenario) -> None:
    service = lost.work.connect()
    request = plan.BackfillRequest(cursors={1: (service.begin(1), service.end(1))})
    assert plan.backfill(lost.by("backfill"), request) is not None
    with pytest.raises(DataExpired) as expired:
        plan.tail(lost.by("run-3"))
    assert expired.value.shard == 0


def test_a_rebuild_begins_shards_where_the_table_says_though_its_ledger_began_later(
    pipeline: Scenario, another_ledger: Ledger, tmp_path: Path
) -> None:
    """A new ledger's first run saw neither the table, which was not mounted, nor what was unread by then."""
    service = pipeline.work.connect()
    end = service.end(0)
    planned = plan.backfill(pipeline.by("backfill"), plan.BackfillRequest(cursors={0: (end - 3, end)}))
    assert planned is not None
    assert finish(pipeline.by("backfill"), planned).rows == 30
    table = Path(pipeline.work.storage.full(""))
    table.rename(tmp_path / "unmounted")
    after = with_source(by_another(pipeline, another_ledger), start="end")
    assert plan.tail(after.by("run-1")) is None
    assert known(after)[0].first == end
    (tmp_path / "unmounted").rename(table)
    rebuild(after.by("rebuild"))
    assert known(after)[0].first == known(pipeline)[0].first < end
    assert after.batch("run-2").rows == 70
    assert verify(after.work).ok


def test_what_the_table_keeps_of_one_logstore_says_nothing_of_another(scenario: Make, server: LocalSls) -> None:
    """Until something is committed the file may be corrected."""
    pipeline = with_source(scenario(shards=1), start="end")
    pipeline.put(40)
    assert plan.tail(pipeline.by("run-0")) is None
    pipeline.put(10, first=40)
    pipeline.open(pipeline.by("run-1"))
    settle(pipeline.by("run-2"), lambda run: True)
    name = f"{pipeline.work.pipeline.source.logstore}-right"
    pipeline.client.create_logstore(PROJECT, name, ttl=7, shard_count=1)
    right = with_source(pipeline, logstore=name, start="begin")
    right = replace(right, work=replace(right.work, connect=lambda: LogService(server.connection(), PROJECT, name)))
    right.put(20)
    assert right.batch("run-3").rows == 20
    assert list(json.loads(kept_by(right).read_text())["first"].values()) == [right.work.connect().begin(0)]


def test_a_gap_that_was_accepted_and_not_committed_outlives_the_ledger(
    pipeline: Scenario, another_ledger: Ledger
) -> None:
    pipeline.batch("run-1")
    pipeline.put(50, first=100)
    split(pipeline)
    (unread,) = look(pipeline, "run-2")
    vanish(pipeline)
    gap = replace(unread, gap=True)
    assert look(skipping(pipeline), "run-3") == [gap]
    after = by_another(pipeline, another_ledger)
    rebuild(after.by("rebuild"))
    assert (known(after)[0].status, known(after)[0].end) == (GONE, unread.end)
    with pytest.raises(DataExpired) as expired:
        plan.tail(after.by("run-4"))
    assert (expired.value.begin, expired.value.end) == (unread.begin, unread.end)


def test_a_ledger_that_is_older_than_the_table_learns_which_shards_are_gone(pipeline: Scenario) -> None:
    split(pipeline)
    pipeline.batch("run-1")
    seen = known(pipeline)[0]
    vanish(pipeline)
    pipeline.put(10, first=100)
    pipeline.batch("run-2")
    assert known(pipeline)[0].status == GONE
    pipeline.work.ledger.save_shards(NAME, [replace(seen, status="readwrite")])
    rebuild(pipeline.by("rebuild"))
    assert (known(pipeline)[0].status, known(pipeline)[0].end) == (GONE, seen.end)
    assert plan.tail(pipeline.by("run-3")) is None


@pytest.mark.parametrize("content", [b"", b"[]", b'{"source":"sls://ads/events","first":null,"gone":{}}'])
def test_a_file_of_duties_that_is_damaged_is_named_with_what_to_do(pipeline: Scenario, content: bytes) -> None:
    pipeline.batch("run-1")
    kept_by(pipeline).write_bytes(content)
    pipeline.put(10, first=100)
    for act in (lambda: plan.tail(pipeline.by("run-2")), lambda: rebuild(pipeline.by("rebuild"))):
        with pytest.raises(TableError, match=r"shards/ad_events\.json is damaged .* delete it"):
            act()
    kept_by(pipeline).unlink()
    assert pipeline.batch("run-3").rows == 10
    assert kept_by(pipeline).exists()


def test_where_a_first_batch_begins_is_kept_before_anything_is_on_the_timeline(
    scenario: Make, another_ledger: Ledger
) -> None:
    """The worker dies after its driver made the table, and the ledger is lost."""
    pipeline = with_source(scenario(shards=1), start="end")
    pipeline.put(10)
    assert plan.tail(pipeline.by("run-0")) is None
    pipeline.put(20, first=10)
    planned = plan.tail(pipeline.by("run-1"))
    assert planned is not None
    launcher = pipeline.work.launcher

    class Dying:
        def run(self, *order: Any) -> None:
            launcher.run(*order)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        steps.open_instant(pipeline.by("run-1", launcher=Dying()), planned.id, planned.token)
    after = by_another(pipeline, another_ledger)
    rebuild(after.by("rebuild"))
    assert after.batch("run-2").rows == 20


def test_pipelines_that_meet_at_one_table_keep_their_duties_apart(scenario: Make, another_ledger: Ledger) -> None:
    """Each by its own ledger, before anything is committed that would say so."""
    pipeline = scenario(shards=1)
    pipeline.put(10)
    pipeline.open(pipeline.by("run-1"))
    settle(pipeline.by("run-2"), lambda run: True)
    before = kept_by(pipeline).read_bytes()
    renamed = pipeline.work.pipeline.model_copy(update={"name": "another"})
    other = replace(pipeline, work=replace(pipeline.work, pipeline=renamed, ledger=another_ledger))
    other.open(other.by("run-1"))
    assert kept_by(other).exists()
    assert kept_by(pipeline).read_bytes() == before


def test_a_rebuilt_ledger_knows_shards_without_a_log_and_those_that_are_gone(
    pipeline: Scenario, another_ledger: Ledger
) -> None:
    split(pipeline)
    pipeline.batch("run-1")
    vanish(pipeline)
    pipeline.put(10, first=100)
    pipeline.batch("run-2")
    before = known(pipeline)
    after = by_another(pipeline, another_ledger)
    rebuild(after.by("rebuild"))
    assert {shard.id: shard.first for shard in known(after).values()} == {
        shard.id: shard.first for shard in before.values()
    }
    assert known(after)[0].status == GONE
    service = cast(LogService, Aged(pipeline.work.connect(), {0}, 40, 30))
    assert plan.tail(after.by("run-3", connect=lambda: service)) is None


def test_of_a_shard_that_no_table_kept_all_that_is_there_is_read_and_the_rest_is_said(
    pipeline: Scenario, another_ledger: Ledger
) -> None:
    """A table of before duties were kept in it."""
    service = pipeline.work.connect()
    end = service.end(0)
    planned = plan.backfill(pipeline.by("backfill"), plan.BackfillRequest(cursors={0: (end - 3, end)}))
    assert planned is not None
    finish(pipeline.by("backfill"), planned)
    kept_by(pipeline).unlink()

    after = by_another(pipeline, another_ledger)
    rebuild(after.by("rebuild"))
    assert known(after)[0].status == LATE
    old = cast(LogService, Aged(service, set(), 40, 30))
    with pytest.raises(DataExpired) as lost:
        plan.tail(after.by("run-1", connect=lambda: old))
    assert lost.value.unseen
    assert after.batch("run-2").rows == 70
