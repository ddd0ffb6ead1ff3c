"""Consumers: each is given every commit that it has not confirmed, in the order in which the ledger heard of them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial

import pytest
from sqlalchemy import Engine

from airflow_provider_slshudi.downstream.changes import Changes, take
from airflow_provider_slshudi.exceptions import ConsumerFenced, ConsumerUnderWay, LedgerError
from airflow_provider_slshudi.ledger import consumer_rows
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.pipeline_rows import COMMANDS
from airflow_provider_slshudi.ledger.records import CommittedBatch, Consumer, Feed, Kind, StartPositions, Transaction
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.transaction.context import Run
from tests.ledger.commits import PIPELINE, commit, complete, prepare

NAME, HOLD = "hourly", 86_400
RUN, OTHER = Run("dag", "run-1", "airflow-1"), Run("dag", "run-2", "airflow-1")


@pytest.fixture
def consumer(ledger: Ledger) -> Consumer:
    return ledger.subscribe(PIPELINE, NAME, Feed.COMMITS, 0, HOLD)


def taken_by(ledger: Ledger, run: Run = RUN, most: int = 100, over: bool | None = None) -> Changes | None:
    """What the run takes, where of any other run is known whether it is over."""
    return take(ledger, PIPELINE, NAME, run, lambda _: over, most)


def given(ledger: Ledger, run: Run = RUN, most: int = 100, over: bool | None = None) -> Changes:
    changes = taken_by(ledger, run, most, over)
    assert changes is not None
    return changes


def ids(changes: Changes) -> list[str]:
    return [item.transaction for item in changes.commits]


def test_it_is_given_what_follows_its_place_and_then_nothing(ledger: Ledger, consumer: Consumer) -> None:
    assert taken_by(ledger) is None
    done = [commit(ledger, [Range(0, n, n + 1)], {"day=2024-01-01": n}) for n in range(3)]
    changes = given(ledger)
    assert ids(changes) == [item.id for item in done]
    assert [item.place for item in changes.commits] == [1, 2, 3]
    assert (changes.first, changes.last, changes.rows, changes.instants) == (1, 3, 3, [item.instant for item in done])
    assert changes.commits[2].partitions == {"day=2024-01-01": 2}
    assert changes.commits[2].ranges == [[0, 2, 3]]
    assert Changes.of(changes.to_dict()) == changes
    assert ledger.confirm(PIPELINE, NAME, 3, changes.nonce).confirmed == 3
    assert taken_by(ledger) is None
    later = commit(ledger)
    assert ids(given(ledger, OTHER)) == [later.id]


def test_a_recovered_commit_comes_late_and_is_not_missed(ledger: Ledger, consumer: Consumer) -> None:
    died = prepare(ledger, [Range(0, 0, 10)])
    overtaking = commit(ledger, [Range(0, 10, 20)])
    changes = given(ledger)
    assert ids(changes) == [overtaking.id]
    ledger.confirm(PIPELINE, NAME, changes.last, changes.nonce)
    # Hudi completed it before the other one, and settle heard of it last.
    complete(ledger, died)
    assert ids(given(ledger)) == [died.id]


def test_replays_and_backfills_are_commits_like_others(ledger: Ledger, consumer: Consumer) -> None:
    for kind in Kind:
        commit(ledger, kind=kind)
    assert [item.kind for item in given(ledger).commits] == ["tail", "backfill", "replay"]


def test_an_aborted_batch_has_no_place(ledger: Ledger, consumer: Consumer) -> None:
    ledger.aborted(prepare(ledger).id, 1, "for a test")
    assert taken_by(ledger) is None
    commit(ledger)
    assert given(ledger).last == 1


def test_what_a_run_took_that_is_over_is_given_again_as_it_was(ledger: Ledger, consumer: Consumer) -> None:
    commit(ledger)
    first = given(ledger)
    commit(ledger)
    with pytest.raises(ConsumerUnderWay) as caught:
        taken_by(ledger, OTHER)
    assert (caught.value.consumer, caught.value.pipeline) == (NAME, PIPELINE)
    assert str(RUN) in caught.value.taker
    again = given(ledger, OTHER, over=True)
    assert (again.key, again.commits) == (first.key, first.commits)
    assert again.nonce != first.nonce
    with pytest.raises(ConsumerFenced, match=r"run .*run-2 has taken it"):
        ledger.confirm(PIPELINE, NAME, first.last, first.nonce)
    assert ledger.consumer(PIPELINE, NAME).confirmed == 0  # type: ignore[union-attr]
    ledger.confirm(PIPELINE, NAME, again.last, again.nonce)
    assert given(ledger, OTHER).first == 2


def test_a_run_that_takes_again_gets_the_same_without_asking_whether_it_lives(
    ledger: Ledger, consumer: Consumer
) -> None:
    commit(ledger)
    first = given(ledger, most=1)
    commit(ledger)
    assert given(ledger, over=False).commits == first.commits


def test_what_a_command_took_is_given_again_once_its_process_is_gone(
    ledger: Ledger, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(ledger)
    shell = Run(COMMANDS, "shell")
    given(ledger, shell)
    with pytest.raises(ConsumerUnderWay):
        taken_by(ledger, OTHER)
    code = "from airflow_provider_slshudi.system.processes import this_process; print(this_process())"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    with monkeypatch.context() as there:
        there.setattr(consumer_rows, "this_process", lambda: ended)
        given(ledger, shell)
    assert given(ledger, OTHER).first == 1


def test_confirming_again_does_nothing_and_of_another_place_is_refused(ledger: Ledger, consumer: Consumer) -> None:
    for _ in range(3):
        commit(ledger)
    changes = given(ledger, most=2)
    with pytest.raises(ConsumerFenced):
        ledger.confirm(PIPELINE, NAME, 3, changes.nonce)
    for _ in range(2):
        assert ledger.confirm(PIPELINE, NAME, 2, changes.nonce).confirmed == 2
    given(ledger)
    # As after an answer that was lost: no run is told that its work was not confirmed.
    with pytest.raises(ConsumerFenced, match=r"it stands at 2\. This run, another one") as fenced:
        ledger.confirm(PIPELINE, NAME, 2, changes.nonce)
    assert "Nothing was confirmed" not in str(fenced.value)


def test_it_is_given_at_most_so_many(ledger: Ledger, consumer: Consumer) -> None:
    for _ in range(5):
        commit(ledger)
    lasts = []
    while (changes := taken_by(ledger, most=2)) is not None:
        lasts.append(changes.last)
        ledger.confirm(PIPELINE, NAME, changes.last, changes.nonce)
    assert lasts == [2, 4, 5]


def test_two_consumers_do_not_touch_each_other(ledger: Ledger, consumer: Consumer) -> None:
    commit(ledger)
    late = ledger.subscribe(PIPELINE, "late", Feed.COMMITS, None, HOLD)
    assert (late.confirmed, consumer.confirmed) == (1, 0)
    commit(ledger)
    changes = given(ledger)
    assert [item.place for item in changes.commits] == [1, 2]
    other = take(ledger, PIPELINE, "late", RUN, lambda _: None)
    assert other is not None
    assert [item.place for item in other.commits] == [2]
    assert changes.key != other.key
    assert [item.name for item in ledger.consumers(PIPELINE)] == [NAME, "late"]


def test_subscribing_again_changes_the_hold_alone(ledger: Ledger, consumer: Consumer) -> None:
    commit(ledger)
    again = ledger.subscribe(PIPELINE, NAME, Feed.COMMITS, None, 60)
    assert (again.confirmed, again.hold, again.created) == (0, 60, consumer.created)
    with pytest.raises(LedgerError, match="choose another name"):
        ledger.subscribe(PIPELINE, NAME, Feed.PARTITIONS, None, 60)
    with pytest.raises(LedgerError, match="expected 0 to 1"):
        ledger.subscribe(PIPELINE, "other", Feed.COMMITS, 2, 60)


def test_a_consumer_that_is_moved_fences_who_took_and_goes_on_from_there(ledger: Ledger, consumer: Consumer) -> None:
    for _ in range(4):
        commit(ledger)
    changes = given(ledger)
    ledger.move(PIPELINE, NAME, 1)
    with pytest.raises(ConsumerFenced, match="it stands at 1"):
        ledger.confirm(PIPELINE, NAME, changes.last, changes.nonce)
    assert [item.place for item in given(ledger, OTHER).commits] == [2, 3, 4]
    assert ledger.move(PIPELINE, NAME, None).confirmed == 4
    assert taken_by(ledger) is None
    with pytest.raises(LedgerError, match="5 is no place: expected 0 to 4"):
        ledger.move(PIPELINE, NAME, 5)


def test_a_consumer_that_is_forgotten_is_unknown(ledger: Ledger, consumer: Consumer) -> None:
    ledger.forget(PIPELINE, NAME)
    assert ledger.consumer(PIPELINE, NAME) is None
    with pytest.raises(LedgerError, match="has no consumer hourly"):
        taken_by(ledger)
    with pytest.raises(LedgerError, match="has no consumer hourly"):
        ledger.forget(PIPELINE, NAME)


def as_the_table_has_it(done: Transaction) -> CommittedBatch:
    named = done.kind, done.instant or "", done.completed or "", done.dag_id, done.run_id
    return CommittedBatch(done.id, *named, (), (), None)


def test_places_outlive_a_rebuild_and_what_it_finds_follows(ledger: Ledger, consumer: Consumer) -> None:
    heard_last = prepare(ledger)
    first, unknown = commit(ledger), prepare(ledger)
    heard_last = complete(ledger, heard_last)
    ledger.aborted(unknown.id, 1, "this ledger is a backup, and the table has it")
    changes = given(ledger)
    ledger.confirm(PIPELINE, NAME, changes.last, changes.nonce)
    found = [as_the_table_has_it(item) for item in (heard_last, first)]
    found.append(CommittedBatch(unknown.id, Kind.TAIL, unknown.instant or "", "20990101", "dag", "run", (), ()))
    assert [item.quarantined for item in changes.commits] == [0, 0]
    ledger.rebuild(PIPELINE, found, StartPositions())
    assert [item.id for item in ledger.commits(PIPELINE, 0, 9)] == [first.id, heard_last.id, unknown.id]
    rebuilt = given(ledger)
    assert ids(rebuilt) == [unknown.id]
    assert rebuilt.commits[0].quarantined is None, "not known any more, which is not 0"


def test_after_a_table_was_set_back_new_commits_come_behind_what_a_consumer_has(
    ledger: Ledger, consumer: Consumer
) -> None:
    done = [commit(ledger) for _ in range(4)]
    changes = given(ledger)
    ledger.confirm(PIPELINE, NAME, changes.last, changes.nonce)
    ledger.rebuild(PIPELINE, [as_the_table_has_it(item) for item in done[:2]], StartPositions())
    assert taken_by(ledger) is None
    read_again = commit(ledger)
    assert ids(given(ledger)) == [read_again.id]


def test_of_two_runs_that_take_at_once_one_waits(engine: Engine, ledger: Ledger, consumer: Consumer) -> None:
    commit(ledger)
    outcomes: list[object] = []

    def run(number: int) -> None:
        try:
            outcomes.append(taken_by(Ledger(engine), Run("dag", f"run-{number}", "airflow-1")))
        except ConsumerUnderWay as error:
            outcomes.append(type(error))

    _at_once(*(partial(run, number) for number in range(4)))
    assert sorted(isinstance(item, Changes) for item in outcomes) == [False, False, False, True]


def test_a_confirmation_and_a_take_at_once_give_nothing_twice(engine: Engine, ledger: Ledger) -> None:
    """Whoever comes first: the place moves and the take gets what follows, or the confirmation is fenced."""
    ledger.subscribe(PIPELINE, NAME, Feed.COMMITS, 0, HOLD)
    for _ in range(20):
        commit(ledger)
        changes = given(ledger)
        taken: list[Changes | None] = []
        fenced: list[ConsumerFenced] = []

        def confirm(changes: Changes = changes, fenced: list[ConsumerFenced] = fenced) -> None:
            try:
                Ledger(engine).confirm(PIPELINE, NAME, changes.last, changes.nonce)
            except ConsumerFenced as error:
                fenced.append(error)

        def take_instead(taken: list[Changes | None] = taken) -> None:
            taken.append(taken_by(Ledger(engine), OTHER, over=True))

        _at_once(confirm, take_instead)
        (again,) = taken
        assert (again is None) != bool(fenced)
        if again is not None:
            assert again.commits == changes.commits
            ledger.confirm(PIPELINE, NAME, again.last, again.nonce)


def _at_once(*acts: Callable[[], None]) -> None:
    running = [threading.Thread(target=act) for act in acts]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
