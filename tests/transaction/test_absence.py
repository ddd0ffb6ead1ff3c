"""A table that is not there, or a file that names another one: nothing is concluded from what is absent."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_slshudi.config.sources import Source
from airflow_provider_slshudi.exceptions import (
    CommitStateUnknown,
    LedgerAhead,
    PipelineConflict,
    TableError,
    TableMismatch,
    TimelineUnreadable,
)
from airflow_provider_slshudi.handover.batch_files import Selection
from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.hudi.layout import Phase
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import State, Transaction
from airflow_provider_slshudi.repair import replay
from airflow_provider_slshudi.repair.abandon import abandon
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.services import maintenance, metadata, rewrite
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.spark.driver import key_access
from airflow_provider_slshudi.spark.driver.key_access import Access
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.transaction import plan, steps
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.decisions import Decision
from airflow_provider_slshudi.transaction.evidence import look
from airflow_provider_slshudi.transaction.settle import settle
from tests.scenarios import DyingLauncher, Scenario

Make = Callable[..., Scenario]
NAME = "ad_events"


def table(pipeline: Scenario) -> Path:
    return Path(pipeline.work.storage.full(""))


def quarantine_of(pipeline: Scenario) -> Path:
    return Path(pipeline.work.pipeline.quarantine_path.removeprefix("file://"))


def edited(work: Work, **changes: Any) -> Work:
    """The same by a pipeline's file that was changed meanwhile."""
    described = work.pipeline.model_dump(mode="json")
    return replace(work, pipeline=type(work.pipeline).model_validate({**described, **changes}))


def elsewhere(work: Work) -> Work:
    described = work.pipeline.table.model_dump(mode="json")
    return edited(work, table={**described, "path": f"{described['path']}_elsewhere"})


def test_a_table_that_is_not_mounted_is_waited_for_and_its_prepared_batch_is_committed_afterwards(
    scenario: Make, tmp_path: Path
) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(10)
    prepared = pipeline.prepare(pipeline.by("run-1"))
    table(pipeline).rename(tmp_path / "unmounted")
    for act in (
        lambda: steps.commit(pipeline.by("run-1"), prepared.id, prepared.token),
        lambda: settle(pipeline.by("run-2"), lambda run: True),
        lambda: plan.tail(pipeline.by("run-3")),
        lambda: maintenance.clean(pipeline.by("clean")),
        lambda: rebuild(pipeline.by("rebuild")),
    ):
        with pytest.raises(TimelineUnreadable, match="See whether it is mounted"):
            act()
    assert pipeline.work.ledger.get(prepared.id).state is State.PREPARED
    assert not table(pipeline).exists()
    table(pipeline).mkdir()  # the place where it is mounted, with nothing in it
    with pytest.raises(TimelineUnreadable, match="table-is-gone"):
        settle(pipeline.by("run-4"), lambda run: True)
    table(pipeline).rmdir()
    (tmp_path / "unmounted").rename(table(pipeline))
    assert [item.decision for item in settle(pipeline.by("run-5"), lambda run: True)] == [Decision.RECOMMIT]
    assert plan.tail(pipeline.by("run-6")) is None


def test_no_table_is_made_where_one_was_when_the_batch_was_planned(scenario: Make, tmp_path: Path) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(10)
    pipeline.prepare(pipeline.by("run-0"))  # its instant is on the table
    pipeline.put(10, first=10)
    planned = plan.tail(pipeline.by("run-1"))
    assert planned is not None
    order = {}

    def unmounted(verb: Verb, job: JobOrder, secrets: object) -> None:
        order[verb] = job
        table(pipeline).rename(tmp_path / "unmounted")
        pipeline.work.launcher.run(verb, job, {})

    launcher = type("Launcher", (), {"run": staticmethod(unmounted)})()
    with pytest.raises(TimelineUnreadable, match="no new one is made"):
        steps.open_instant(pipeline.by("run-1", launcher=launcher), planned.id, planned.token)
    assert not order[Verb.OPEN].creates
    assert not table(pipeline).exists()


def test_each_step_holds_name_source_and_path_against_what_the_batch_was_planned_for(scenario: Make) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(10)
    planned = plan.tail(pipeline.by("run-1"))
    assert planned is not None
    held = planned.id, planned.token
    changes: list[Callable[[Work], Work]] = [
        elsewhere,
        lambda work: edited(work, source={**work.pipeline.source.model_dump(), "logstore": "another"}),
        lambda work: edited(work, name="renamed"),
    ]

    def refused(act: Callable[[Work], object]) -> None:
        for change in changes:
            with pytest.raises(PipelineConflict):
                act(change(pipeline.by("run-1")))

    refused(lambda work: steps.open_instant(work, *held))
    steps.open_instant(pipeline.by("run-1"), *held)
    refused(lambda work: steps.append(work, *held))
    steps.append(pipeline.by("run-1"), *held)
    refused(lambda work: steps.record(work, *held))
    steps.record(pipeline.by("run-1"), *held)
    refused(lambda work: steps.commit(work, *held))
    changes.pop()  # a new name for another table is a new pipeline
    refused(lambda work: settle(work, lambda run: True))
    for act in (maintenance.clean, maintenance.archive, metadata.check_metadata, rewrite.cluster, rebuild):
        refused(act)
    assert pipeline.work.ledger.get(planned.id).state is State.PREPARED
    assert steps.commit(pipeline.by("run-1"), *held).rows == 10


def test_an_append_reads_the_source_of_its_order_whatever_the_file_says_by_now(
    scenario: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(10)
    opened = pipeline.open(pipeline.by("run-1"))
    changed = edited(pipeline.work, source={**pipeline.work.pipeline.source.model_dump(), "logstore": "another"})
    read = []
    whole = key_access.granted

    def granted(spark: Any, source: Source, keys: key_access.Keys) -> AbstractContextManager[Access]:
        read.append(source.logstore)
        return whole(spark, source, keys)

    monkeypatch.setattr(key_access, "granted", granted)
    instant, digest = str(opened.instant), str(opened.order_digest)
    order = changed.order(transaction=opened.id, token=opened.token, instant=instant, digest=digest)
    pipeline.work.launcher.run(Verb.APPEND, order, pipeline.work.connect().connection.to_env())
    assert read == [pipeline.work.pipeline.source.logstore]
    assert steps.record(pipeline.by("run-1"), opened.id, opened.token).rows == 10


def test_properties_that_a_killed_driver_left_under_their_other_name_are_put_back(scenario: Make) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(10)
    pipeline.batch("run-1")
    properties = table(pipeline) / ".hoodie" / "hoodie.properties"
    properties.rename(properties.with_name("hoodie.properties.backup"))  # as Hudi begins to change them
    with pytest.raises(TableError, match="--table-is-gone was given, but"):
        rebuild(pipeline.work, table_is_gone=True)
    pipeline.put(10, first=10)
    assert pipeline.batch("run-2").rows == 10
    assert properties.exists()
    assert verify(pipeline.work).ok


def test_properties_that_describe_no_table_are_refused_before_a_driver_starts(scenario: Make) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(10)
    pipeline.batch("run-1")
    properties = table(pipeline) / ".hoodie" / "hoodie.properties"
    whole = properties.read_bytes()
    pipeline.put(10, first=10)
    for content in (b"", b"\xff\xfe not what Hudi wrote"):
        properties.write_bytes(content)
        with pytest.raises(TableMismatch, match=r"hoodie\.properties has no hoodie\.table\.name"):
            pipeline.batch("run-2")
    assert not pipeline.work.ledger.live(pipeline.work.pipeline.name), "nothing was planned"
    # A driver died while it wrote the file, and before that while it wrote the copy: there is none.
    copy = properties.with_name("hoodie.properties.backup")
    copy.write_bytes(whole[:20])
    with pytest.raises(TableMismatch):
        pipeline.batch("run-2")
    assert copy.read_bytes() == whole[:20]
    # With a copy that is whole the file is put back, also where it has its name already.
    for number, content in enumerate((b"", b"hoodie.table.name=ad_events\nhoodie.table.ty")):
        copy.write_bytes(whole)
        properties.write_bytes(content)
        assert pipeline.batch(f"run-{number + 3}").rows == 10
        pipeline.put(10, first=20 + 10 * number)
    assert set(whole.splitlines()) <= set(properties.read_bytes().splitlines()) and verify(pipeline.work).ok


def test_a_table_of_which_files_are_left_is_not_begun_anew(scenario: Make) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(10)
    pipeline.batch("run-1")
    shutil.rmtree(table(pipeline) / ".hoodie")
    with pytest.raises(TableError, match="or files of it are"):
        rebuild(pipeline.work, table_is_gone=True)


def test_a_table_that_was_deleted_for_good_is_begun_anew_by_a_word_of_its_own(scenario: Make) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(20)
    pipeline.batch("run-1")
    pipeline.put(10, first=20)
    prepared = pipeline.prepare(pipeline.by("run-2"))
    with pytest.raises(TableError, match="--table-is-gone was given, but"):
        rebuild(pipeline.work, table_is_gone=True)
    shutil.rmtree(table(pipeline))
    with pytest.raises(TimelineUnreadable, match=f"slshudi ledger rebuild {NAME} --table-is-gone"):
        settle(pipeline.by("run-3"), lambda run: True)
    assert rebuild(pipeline.work, table_is_gone=True).committed == 0
    assert pipeline.work.ledger.find(prepared.id) is None
    assert pipeline.batch("run-4").rows == 30
    assert verify(pipeline.work).ok


def test_a_quarantine_that_is_not_mounted_is_waited_for_and_none_is_made_in_its_place(
    scenario: Make, tmp_path: Path
) -> None:
    pipeline = scenario(shards=1, misfits="quarantine")
    pipeline.put(10)
    pipeline.batch("run-1")
    aside = quarantine_of(pipeline)
    pipeline.put(10, first=10)
    planned = plan.tail(pipeline.by("run-2"))
    assert planned is not None
    aside.rename(tmp_path / "unmounted")
    for act in (
        lambda: steps.open_instant(pipeline.by("run-2"), planned.id, planned.token),
        lambda: settle(pipeline.by("run-2"), lambda run: True),
        lambda: plan.tail(pipeline.by("run-2")),
        lambda: replay.show(pipeline.by("show")),
        lambda: replay.replay(pipeline.by("replay"), Selection()),
        lambda: verify(pipeline.by("verify")),
        lambda: maintenance.clean(pipeline.by("clean")),
        lambda: maintenance.archive(pipeline.by("archive")),
    ):
        with pytest.raises(TimelineUnreadable, match="the quarantine is not here any more"):
            act()
    assert not aside.exists()

    (tmp_path / "unmounted").rename(aside)
    settle(pipeline.by("run-3"), lambda run: True)
    assert pipeline.batch("run-3").rows == 10
    assert verify(pipeline.work).ok


def test_a_new_quarantines_properties_that_a_killed_driver_left_under_their_other_name_are_put_back(
    scenario: Make,
) -> None:
    """Nothing else is in it yet that would tell it from one that is not mounted."""
    pipeline = scenario(shards=1, misfits="quarantine")
    pipeline.put(10)
    pipeline.open(pipeline.by("run-1"))
    properties = quarantine_of(pipeline) / ".hoodie/hoodie.properties"
    properties.rename(properties.with_name("hoodie.properties.backup"))
    settle(pipeline.by("run-2"), lambda run: True)
    assert properties.exists()
    assert pipeline.batch("run-3").rows == 10


def test_a_quarantine_that_was_deleted_on_purpose_is_made_anew_once_somebody_says_so(scenario: Make) -> None:
    pipeline = scenario(shards=1, misfits="quarantine")
    pipeline.put(10)
    pipeline.batch("run-1")
    shutil.rmtree(quarantine_of(pipeline))
    (table(pipeline) / ".hoodie/slshudi/quarantine").write_text("")
    pipeline.put(10, first=10)
    assert pipeline.batch("run-2").rows == 10


def test_an_append_whose_quarantine_went_away_says_so(scenario: Make, tmp_path: Path) -> None:
    pipeline = scenario(shards=1, misfits="quarantine")
    pipeline.put(20)
    opened = pipeline.open(pipeline.by("run-1"))
    aside = quarantine_of(pipeline)
    aside.rename(tmp_path / "unmounted")
    with pytest.raises(TimelineUnreadable, match="the quarantine is not here any more"):
        steps.append(pipeline.by("run-1"), opened.id, opened.token)
    (tmp_path / "unmounted").rename(aside)
    assert [item.decision for item in settle(pipeline.by("run-2"), lambda run: True)] == [Decision.ROLL_BACK_AND_ABORT]
    assert pipeline.batch("run-3").rows == 20


def test_where_nothing_says_where_logs_were_put_aside_no_quarantine_is_made(scenario: Make) -> None:
    """A table of before places were kept, or that was restored from then."""
    pipeline = scenario(shards=1, misfits="quarantine")
    pipeline.put(20)
    assert (pipeline.batch("run-1").manifest or {}).get("quarantined")
    shutil.rmtree(quarantine_of(pipeline))
    place = table(pipeline) / ".hoodie/slshudi/quarantine"
    place.unlink()
    pipeline.put(10, first=20)
    planned = plan.tail(pipeline.by("run-2"))
    assert planned is not None
    with pytest.raises(TimelineUnreadable, match="put logs into one"):
        steps.open_instant(pipeline.by("run-2"), planned.id, planned.token)
    place.write_text("")
    settle(pipeline.by("run-3"), lambda run: True)
    assert pipeline.batch("run-4").rows == 10


def test_a_quarantine_that_goes_away_before_the_commit_takes_nothing_with_it(scenario: Make, tmp_path: Path) -> None:
    pipeline = scenario(shards=1, misfits="quarantine")
    pipeline.put(20)
    prepared = pipeline.prepare(pipeline.by("run-1"))
    assert (prepared.manifest or {}).get("quarantined")
    aside = quarantine_of(pipeline)
    aside.rename(tmp_path / "unmounted")
    for act in (
        lambda: steps.commit(pipeline.by("run-1"), prepared.id, prepared.token),
        lambda: settle(pipeline.by("run-2"), lambda run: True),
        lambda: rebuild(pipeline.by("rebuild")),
    ):
        with pytest.raises(TimelineUnreadable, match="the quarantine is not here any more"):
            act()
    found = pipeline.work.timeline().get(str(prepared.instant))
    assert found is not None and found.phase is Phase.INFLIGHT, "nothing of it is committed before the rest can be"

    (tmp_path / "unmounted").rename(aside)
    settle(pipeline.by("run-3"), lambda run: True)
    assert pipeline.work.ledger.get(prepared.id).state is State.COMMITTED
    assert verify(pipeline.work).ok


def put_back(copy: Path, place: Path) -> None:
    shutil.rmtree(place)
    shutil.copytree(copy, place)


@pytest.fixture
def quarantined(scenario: Make) -> Scenario:
    """A batch with logs aside."""
    pipeline = scenario(shards=1, misfits="quarantine")
    pipeline.put(20)
    pipeline.batch("run-1")
    return pipeline


@pytest.fixture
def twice_quarantined(quarantined: Scenario, tmp_path: Path) -> Scenario:
    """Two batches with logs aside; in `tmp_path` both tables as they were after the first."""
    pipeline = quarantined
    shutil.copytree(table(pipeline), tmp_path / "main")
    shutil.copytree(quarantine_of(pipeline), tmp_path / "quarantine")
    pipeline.put(20, first=20)
    pipeline.batch("run-2")
    return pipeline


def test_a_table_that_was_restored_without_its_quarantine_is_refused_until_both_were(
    twice_quarantined: Scenario, tmp_path: Path
) -> None:
    pipeline = twice_quarantined
    put_back(tmp_path / "main", table(pipeline))
    with pytest.raises(LedgerAhead):
        settle(pipeline.by("run-3"), lambda run: True)
    with pytest.raises(TableMismatch, match="Restore both tables to before this instant"):
        rebuild(pipeline.by("rebuild"))
    put_back(tmp_path / "quarantine", quarantine_of(pipeline))
    rebuild(pipeline.by("rebuild"))
    assert pipeline.batch("run-3").rows == 20
    assert verify(pipeline.work).ok


def test_a_table_and_a_ledger_that_were_restored_without_the_quarantine_are_refused(
    twice_quarantined: Scenario, another_ledger: Ledger, tmp_path: Path
) -> None:
    """They agree with each other; what they read again would be put aside twice."""
    pipeline = twice_quarantined
    now = tmp_path / "now"
    shutil.copytree(quarantine_of(pipeline), now)
    put_back(tmp_path / "main", table(pipeline))
    put_back(tmp_path / "quarantine", quarantine_of(pipeline))
    pipeline = replace(pipeline, work=replace(pipeline.work, ledger=another_ledger))
    rebuild(pipeline.by("restore"))  # the ledger as it was then
    put_back(now, quarantine_of(pipeline))
    for act in (
        lambda: settle(pipeline.by("run-4"), lambda run: True),
        lambda: plan.tail(pipeline.by("run-4")),
        lambda: replay.replay(pipeline.by("replay"), Selection()),
        lambda: rebuild(pipeline.by("rebuild")),
    ):
        with pytest.raises(TableMismatch, match="Restore both tables to before this instant"):
            act()
    put_back(tmp_path / "quarantine", quarantine_of(pipeline))
    assert pipeline.batch("run-5").rows == 20
    assert verify(pipeline.work).ok


def test_a_table_and_a_ledger_that_were_restored_to_before_the_quarantine_are_refused(
    scenario: Make, another_ledger: Ledger, tmp_path: Path
) -> None:
    """Neither the file nor the table's record of places knows of it; the same logs would be in both."""
    pipeline = scenario(shards=1)
    pipeline.put(20)
    pipeline.batch("run-1")
    shutil.copytree(table(pipeline), tmp_path / "main")
    aside = pipeline.work.pipeline.model_copy(update={"misfits": "quarantine"})
    pipeline.put(20, first=20)
    work = pipeline.by("run-2", pipeline=aside)
    prepared = pipeline.prepare(work)
    steps.commit(work, prepared.id, prepared.token)
    quarantine_of(pipeline).rename(tmp_path / "away")
    put_back(tmp_path / "main", table(pipeline))
    pipeline = replace(pipeline, work=replace(pipeline.work, ledger=another_ledger))
    rebuild(pipeline.by("restore"))  # the ledger as it was then
    (tmp_path / "away").rename(quarantine_of(pipeline))
    for act in (
        lambda: settle(pipeline.by("run-3"), lambda run: True),
        lambda: plan.tail(pipeline.by("run-3")),
        lambda: rebuild(pipeline.by("rebuild")),
    ):
        with pytest.raises(TableMismatch, match="Restore both tables to before this instant"):
            act()
    shutil.rmtree(quarantine_of(pipeline))
    assert pipeline.batch("run-4").rows == 20
    assert verify(pipeline.work).ok


def test_a_quarantine_that_was_restored_to_before_its_first_commit_is_not_taken_for_a_new_one(
    quarantined: Scenario,
) -> None:
    pipeline = quarantined
    for file in (quarantine_of(pipeline) / ".hoodie/timeline").iterdir():
        if file.is_file():
            file.unlink()
    for act in (
        lambda: rebuild(pipeline.by("rebuild")),
        lambda: replay.replay(pipeline.by("replay"), Selection()),
    ):
        with pytest.raises(TableMismatch, match="Restore both tables"):
            act()


def test_a_quarantine_that_was_restored_without_its_table_is_refused(
    twice_quarantined: Scenario, tmp_path: Path
) -> None:
    pipeline = twice_quarantined
    put_back(tmp_path / "quarantine", quarantine_of(pipeline))
    for act in (
        lambda: rebuild(pipeline.by("rebuild")),
        lambda: replay.replay(pipeline.by("replay"), Selection()),
    ):
        with pytest.raises(TableMismatch, match="Restore both tables"):
            act()
    put_back(tmp_path / "main", table(pipeline))
    rebuild(pipeline.by("rebuild"))
    assert pipeline.batch("run-3").rows == 20
    assert verify(pipeline.work).ok


def committed_but_for_the_quarantine(pipeline: Scenario) -> Transaction:
    """A batch whose driver died between the two commits."""
    prepared = pipeline.prepare(pipeline.by("run-1"))
    dying = DyingLauncher(Point.COMMIT_COMPLETED)
    with pytest.raises(CommitStateUnknown):
        steps.commit(pipeline.by("run-1", launcher=dying), prepared.id, prepared.token)
    return prepared


def test_a_quarantines_part_is_committed_wherever_the_quarantine_is_by_now(scenario: Make, tmp_path: Path) -> None:
    """A rebuild by a file that names another place."""
    pipeline = scenario(shards=1, misfits="quarantine")
    pipeline.put(20)
    committed_but_for_the_quarantine(pipeline)
    rebuild(elsewhere_aside(pipeline, tmp_path / "another").work)
    assert verify(pipeline.work).ok


def elsewhere_aside(pipeline: Scenario, path: Path) -> Scenario:
    """The same with a file that names another place for the quarantine."""
    described = pipeline.work.pipeline.quarantine.model_dump(mode="json")
    return replace(pipeline, work=edited(pipeline.work, quarantine={**described, "path": f"file://{path}"}))


def test_a_former_quarantine_that_is_not_mounted_is_named(quarantined: Scenario, tmp_path: Path) -> None:
    here = quarantined
    former = elsewhere_aside(here, tmp_path / "former")
    former.put(20, first=20)
    former.batch("run-2")
    (tmp_path / "former").rename(tmp_path / "unmounted")
    for act in (
        lambda: rebuild(here.by("rebuild")),
        lambda: replay.replay(here.by("replay"), Selection()),
    ):
        with pytest.raises(TimelineUnreadable, match="/former: the quarantine is not here any more"):
            act()
    (tmp_path / "unmounted").rename(tmp_path / "former")
    rebuild(here.by("rebuild"))
    assert replay.replay(here.by("replay"), Selection()) is not None


def test_what_another_pipeline_made_at_a_place_that_was_left_is_its_own(quarantined: Scenario, tmp_path: Path) -> None:
    left = quarantined
    moved = elsewhere_aside(left, tmp_path / "moved")
    quarantine_of(left).rename(tmp_path / "moved")
    with pytest.raises(TimelineUnreadable, match="take its line out"):
        rebuild(moved.by("rebuild"))
    (table(left) / ".hoodie/slshudi/quarantine").write_text("")
    moved.put(10, first=20)
    moved.batch("run-2")

    # Another's quarantine where the first one was, and where a line says so again.
    place = table(left) / ".hoodie/slshudi/quarantine"
    place.write_text(f"{place.read_text()}\n{left.work.pipeline.quarantine_path}")
    other = edited(left.work, name="another", table={"path": f"file://{tmp_path}/other", "name": "other"})
    them = elsewhere_aside(replace(left, work=other), quarantine_of(left))
    them.batch("their-run")
    rebuild(moved.by("rebuild"))
    assert verify(moved.work).ok


def test_a_pending_clean_of_the_quarantine_is_nothing_to_roll_back(quarantined: Scenario) -> None:
    pipeline = quarantined
    timeline = quarantine_of(pipeline) / ".hoodie/timeline"
    newest = max(file.name for file in timeline.iterdir() if file.name[0].isdigit())[:17]
    plan_of_clean = timeline / f"{int(newest) + 1}.clean.requested"
    # Any whole file of the timeline: one without content would be a plan that was cut off.
    plan_of_clean.write_bytes(next(timeline.glob("*_*.commit")).read_bytes())
    rebuild(pipeline.by("rebuild"))
    assert plan_of_clean.exists()
    plan_of_clean.unlink()
    assert verify(pipeline.work).ok


def test_of_properties_that_a_killed_driver_left_under_their_other_name_recover_is_said(quarantined: Scenario) -> None:
    pipeline = quarantined
    properties = quarantine_of(pipeline) / ".hoodie/hoodie.properties"
    properties.rename(properties.with_name("hoodie.properties.backup"))
    for act in (
        lambda: verify(pipeline.by("verify")),
        lambda: replay.replay(pipeline.by("replay"), Selection()),
        lambda: rebuild(pipeline.by("rebuild")),
    ):
        with pytest.raises(TimelineUnreadable, match="slshudi recover"):
            act()
    settle(pipeline.by("recover"), lambda run: True)
    rebuild(pipeline.by("rebuild"))
    assert verify(pipeline.work).ok


def test_settle_finishes_what_a_ledger_that_was_rebuilt_too_early_calls_committed(scenario: Make) -> None:
    pipeline = scenario(shards=1, misfits="quarantine")
    pipeline.put(20)
    prepared = committed_but_for_the_quarantine(pipeline)
    completion = look(pipeline.work, pipeline.work.ledger.get(prepared.id)).completion
    pipeline.work.ledger.committed(prepared.id, prepared.token, str(completion))
    (done,) = settle(pipeline.by("run-2"), lambda run: True)
    assert (done.transaction, done.decision) == (prepared.id, Decision.RECOMMIT)
    assert verify(pipeline.work).ok
    assert settle(pipeline.by("run-3"), lambda run: True) == []


def test_nothing_is_committed_whose_part_in_the_quarantine_is_gone(scenario: Make) -> None:
    pipeline = scenario(shards=1, misfits="quarantine")
    pipeline.put(20)
    prepared = pipeline.prepare(pipeline.by("run-1"))
    shutil.rmtree(quarantine_of(pipeline))
    (table(pipeline) / ".hoodie/slshudi/quarantine").write_text("")
    with pytest.raises((TableMismatch, CommitStateUnknown), match="slshudi abandon"):
        settle(pipeline.by("run-2"), lambda run: True)
    found = pipeline.work.timeline().get(str(prepared.instant))
    assert found is not None and found.phase is Phase.INFLIGHT
    abandon(pipeline.by("abandon"), prepared.id, "its part in the quarantine was deleted")
    assert pipeline.batch("run-3").rows == 20
    assert verify(pipeline.work).ok


def test_another_spelling_of_a_place_is_the_same_place(scenario: Make, tmp_path: Path) -> None:
    pipeline = scenario(shards=1, misfits="quarantine")
    pipeline.put(20)
    pipeline.batch("run-1")
    aside = quarantine_of(pipeline)
    aside.rename(tmp_path / "unmounted")
    described = pipeline.work.pipeline.quarantine.model_dump(mode="json")
    spelled = edited(pipeline.work, quarantine={**described, "path": f"file:{aside}"})
    with pytest.raises(TimelineUnreadable, match="the quarantine is not here any more"):
        settle(spelled, lambda run: True)
