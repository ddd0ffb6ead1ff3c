"""Which transactions nobody works on: real processes that beat, end, stand still or die."""

from __future__ import annotations

import errno
import re
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from sqlalchemy import Engine, select, update

from airflow_provider_slshudi.exceptions import BatchUnderWay, LeaseHeld, LedgerAhead, LedgerUnavailable, TailUnderWay
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger import models, transactions
from airflow_provider_slshudi.ledger.lease import Lease
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import LIVE, SILENT_AFTER, Kind, State, Transaction
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.repair.recover import recover
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.system.processes import this_process
from airflow_provider_slshudi.transaction import context as work_module
from airflow_provider_slshudi.transaction import plan, steps
from airflow_provider_slshudi.transaction import settle as settle_module
from airflow_provider_slshudi.transaction.context import Run, Work
from airflow_provider_slshudi.transaction.dangling import (
    AGAIN_AFTER,
    QUIET_AFTER,
    SILENT,
    UNHEARD,
    WITHOUT_A_BEAT,
    Awaited,
    abandoned,
    awaited,
    is_over,
)
from airflow_provider_slshudi.transaction.decisions import Decision
from airflow_provider_slshudi.transaction.evidence import require_agreement
from airflow_provider_slshudi.transaction.news import LEFT, news
from airflow_provider_slshudi.transaction.resolve import resolve
from airflow_provider_slshudi.transaction.settle import dangling_transactions, register, require_alone, require_turn
from airflow_provider_slshudi.transaction.tables import Timelines
from tests.ledgers import engine_in
from tests.pipelines import ad_events, customers
from tests.scenarios import Scenario, forget_all_instants
from tests.waiting import until

NAME = "ad_events"
STEP = """
import sys
from airflow_provider_slshudi.ledger.engine import open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
ledger, id_ = Ledger(open_engine(sys.argv[1])), sys.argv[2]
for word in sys.stdin:
    getattr(ledger, word.strip())(id_, 1)
    print("done", flush=True)
"""


class Step:
    """A process of its own that works on a transaction."""

    def __init__(self, engine: Engine, id_: str) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-c", STEP, str(engine.url), id_], stdin=-1, stdout=-1, text=True, bufsize=1
        )
        self.does("heartbeat")

    def does(self, what: str) -> None:
        assert self.child.stdin is not None and self.child.stdout is not None
        self.child.stdin.write(f"{what}\n")
        assert self.child.stdout.readline() == "done\n"

    def end(self) -> None:
        self.child.kill()
        self.child.communicate()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    pipeline = ad_events(tmp_path / "lake")
    with engine_in(tmp_path / "ledger.db") as engine:
        Ledger(engine).register(NAME, pipeline.source.identity, pipeline.table.path)
        yield engine


@pytest.fixture
def ledger(engine: Engine) -> Ledger:
    return Ledger(engine)


@pytest.fixture
def begun(ledger: Ledger) -> Transaction:
    return ledger.begin(NAME, Kind.TAIL, [Range(0, 0, 5)], "tail", "run-1")


@pytest.fixture
def start(engine: Engine, begun: Transaction) -> Iterator[Callable[[], Step]]:
    """Starts processes that work on the transaction."""
    steps: list[Step] = []

    def start() -> Step:
        steps.append(Step(engine, begun.id))
        return steps[-1]

    yield start
    for step in steps:
        step.end()


@pytest.fixture
def quiet(engine: Engine, begun: Transaction) -> Callable[..., None]:
    """Lets time pass since the last heartbeat."""

    def quiet(since: timedelta = QUIET_AFTER + timedelta(seconds=1)) -> None:
        mine = models.transactions.c.id == begun.id
        with engine.begin() as connection:
            last = connection.execute(select(models.transactions.c.heartbeat).where(mine)).scalar_one()
            connection.execute(update(models.transactions).where(mine).values(heartbeat=last - since))

    return quiet


@pytest.fixture
def fall_silent(engine: Engine, begun: Transaction, quiet: Callable[..., None]) -> Callable[[], None]:
    """Lets time pass in which the ledger was away, or its clock was set ahead, and the step runs elsewhere."""

    def fall_silent() -> None:
        named(engine, begun.id, elsewhere("another machine"))
        quiet(SILENT_AFTER + timedelta(minutes=1))

    return fall_silent


@pytest.fixture
def seen_earlier(engine: Engine, begun: Transaction) -> Callable[..., None]:
    """Lets time pass since somebody saw how silent the transaction is."""

    def seen_earlier(since: timedelta = AGAIN_AFTER + timedelta(seconds=1)) -> None:
        mine = (models.events.c.transaction_id == begun.id) & (models.events.c.what == SILENT)
        with engine.begin() as connection:
            (seen,) = connection.execute(select(models.events.c.at).where(mine)).scalars()
            connection.execute(update(models.events).where(mine).values(at=seen - since))

    return seen_earlier


@pytest.fixture
def why(ledger: Ledger, begun: Transaction) -> Callable[..., str]:
    """Why the transaction counts as abandoned, while Airflow says that its run goes on."""

    def why(ended: bool | None = False) -> str:
        return abandoned(ledger, ledger.get(begun.id), lambda run: ended)

    return why


def named(engine: Engine, id_: str, process: str | None) -> None:
    with engine.begin() as connection:
        connection.execute(update(models.transactions).where(models.transactions.c.id == id_).values(process=process))


def elsewhere(where: str) -> str:
    """A process that nobody here can look at."""
    machine, boot, numbering, pid, started = this_process().rsplit("/", 4)
    return {
        "another machine": f"another/{boot[::-1]}/{numbering}/{pid}/{started}",
        "another container": f"{machine}/{boot}/pid:[1]/{pid}/1",
        "nowhere": "",
    }[where]


def work_of(ledger: Ledger, tmp_path: Path, run: Run, upserts: bool = False) -> Work:
    made = customers(tmp_path / "lake").model_copy(update={"name": NAME}) if upserts else ad_events(tmp_path / "lake")
    return Work(made, ledger, None, None, run)  # type: ignore[arg-type]  # neither jobs nor a service here


def test_a_step_whose_process_was_killed_dangles_once_it_is_quiet_whatever_airflow_says(
    start: Callable[[], Step], quiet: Callable[..., None], why: Callable[..., str], ledger: Ledger, begun: Transaction
) -> None:
    step = start()
    process = str(ledger.get(begun.id).process)
    step.end()
    assert why() == "", "Airflow may be about to try the step again"
    quiet()
    assert why() == f"its process is gone: {process}"


class Airflow:
    """An Airflow in which the run goes on, and a worker has the task of this one of its steps."""

    def __init__(self, step: str = "", state: str = "running") -> None:
        self.step, self.state = step, state

    def __call__(self, run: Run) -> bool | None:
        return False

    def shown_step(self, run: Run, steps: Collection[str]) -> str:
        return f"{self.step} {self.state}" if self.step in steps else ""


@pytest.fixture
def unheard_earlier(engine: Engine, ledger: Ledger, begun: Transaction) -> Callable[[timedelta], None]:
    """Lets time pass since somebody saw that a worker has the step, of which nobody is heard."""

    def unheard_earlier(ago: timedelta) -> None:
        mine = (models.events.c.transaction_id == begun.id) & (models.events.c.what == UNHEARD)
        with engine.begin() as connection:
            connection.execute(update(models.events).where(mine).values(at=ledger.now() - ago))

    return unheard_earlier


@pytest.mark.parametrize("step", ["plan", "open"], ids=["ends", "begins"])
def test_a_step_that_a_worker_has_and_that_is_not_heard_of_lost_its_worker_as_it(
    step: str,
    ledger: Ledger,
    begun: Transaction,
    quiet: Callable[..., None],
    unheard_earlier: Callable[[timedelta], None],
) -> None:
    def why(step: str = "") -> str:
        return abandoned(ledger, ledger.get(begun.id), Airflow(step))

    ledger.release(begun.id, 1)
    assert why(step) == "", "its worker may be about to tell Airflow, or to beat"
    quiet(QUIET_AFTER + timedelta(seconds=1))
    assert why("settle") == why() == "", "a task may wait for its slot"
    assert [event.what for event in ledger.events(begun.id)].count(UNHEARD) == 0
    assert why(step) == ""
    unheard_earlier(WITHOUT_A_BEAT - timedelta(seconds=5))
    assert why(step) == ""
    unheard_earlier(WITHOUT_A_BEAT + timedelta(seconds=1))
    assert why(step).startswith("a worker has the task of its step, which was not heard of since ")
    assert why() == "", "it may wait"
    ledger.heartbeat(begun.id, 1)
    assert why(step) == ""


@pytest.mark.parametrize(
    ("before", "then"),
    [
        (Airflow("open"), Airflow("append", "queued")),
        (Airflow("append", "queued"), Airflow("append")),
        (Airflow("record"), Airflow()),
    ],
    ids=["after a step that ended slowly", "after a queue", "after a try that failed"],
)
def test_a_task_that_begins_has_its_own_time(
    before: Airflow,
    then: Airflow,
    ledger: Ledger,
    begun: Transaction,
    quiet: Callable[..., None],
    unheard_earlier: Callable[[timedelta], None],
) -> None:
    ledger.release(begun.id, 1)
    quiet()
    last = then if then.step else before
    for shown in (before, then, last):
        assert abandoned(ledger, ledger.get(begun.id), shown) == "", "the task has begun just now"
        if shown is not last:
            unheard_earlier(WITHOUT_A_BEAT + timedelta(seconds=1))
    unheard_earlier(WITHOUT_A_BEAT + timedelta(seconds=1))
    assert abandoned(ledger, ledger.get(begun.id), last).startswith("a worker has the task of its step")


def test_a_recovery_asks_for_the_steps_of_runs_that_nobody_named(
    ledger: Ledger,
    begun: Transaction,
    tmp_path: Path,
    quiet: Callable[..., None],
    unheard_earlier: Callable[[timedelta], None],
) -> None:
    work = work_of(ledger, tmp_path, Run("recovery", "1"))
    ledger.release(begun.id, 1)
    quiet()
    assert recover(work, Airflow("open")).settled == []
    unheard_earlier(WITHOUT_A_BEAT + timedelta(seconds=1))
    (done,) = recover(work, Airflow("open")).settled
    assert done.transaction == begun.id


def test_a_step_that_stands_still_lives(
    start: Callable[[], Step], quiet: Callable[..., None], why: Callable[..., str]
) -> None:
    step = start()
    psutil.Process(step.child.pid).suspend()
    quiet(timedelta(days=1))
    assert why() == why(None) == ""
    psutil.Process(step.child.pid).resume()
    step.does("heartbeat")
    assert why() == ""


def test_a_step_beats_on_after_an_error_of_its_machine(
    ledger: Ledger, begun: Transaction, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing: list[OSError] = []
    monkeypatch.setattr(work_module, "PULSE_SECONDS", 0.05)

    def named() -> str:
        if len(failing) == 1:
            failing.append(OSError(errno.EMFILE, "Too many open files"))
            raise failing[-1]
        return this_process()

    monkeypatch.setattr(transactions, "this_process", named)
    with work_of(ledger, tmp_path, Run("tail", "run-1")).heartbeat(begun.id, begun.token):
        failing.append(OSError())
        until("the beat fails", lambda: len(failing) == 2)
        before = ledger.get(begun.id).heartbeat
        until("another beat", lambda: ledger.get(begun.id).heartbeat > before)


def test_between_two_steps_a_scheduler_may_take_its_time(
    start: Callable[[], Step], quiet: Callable[..., None], why: Callable[..., str], ledger: Ledger, begun: Transaction
) -> None:
    step = start()
    step.does("release")
    step.end()
    assert ledger.get(begun.id).process is None
    quiet(timedelta(days=1))
    assert why() == ""
    # As before, where Airflow cannot tell.
    assert why(None).startswith("its run is not known")


def test_a_retry_that_lives_is_not_taken_for_the_dead_first_try(
    start: Callable[[], Step], quiet: Callable[..., None], why: Callable[..., str]
) -> None:
    first, second = start(), start()
    first.does("heartbeat")  # the last one who beats, and then dies
    first.end()
    second.does("heartbeat")
    quiet()
    assert why() == ""
    # The end of the first, however late it is told, says nothing of the second.
    second.end()
    assert "its process is gone" in why()


def test_the_end_of_a_first_try_does_not_hide_the_second(
    start: Callable[[], Step], ledger: Ledger, begun: Transaction
) -> None:
    first, second = start(), start()
    process = ledger.get(begun.id).process
    first.does("release")
    assert ledger.get(begun.id).process == process
    second.does("release")
    assert ledger.get(begun.id).process is None


@pytest.mark.parametrize("where", ["another machine", "another container", "nowhere"])
def test_of_what_ran_elsewhere_airflow_alone_can_tell(
    where: str, engine: Engine, begun: Transaction, quiet: Callable[..., None], why: Callable[..., str]
) -> None:
    named(engine, begun.id, elsewhere(where))
    quiet(SILENT_AFTER - timedelta(seconds=5))
    assert why(False) == why(None) == ""
    assert why(True) == "its run has ended"


@pytest.mark.parametrize("where", ["another machine", "another container"])
def test_a_step_elsewhere_of_which_nobody_heard_for_long_dangles_though_its_run_lives(
    where: str,
    engine: Engine,
    begun: Transaction,
    quiet: Callable[..., None],
    seen_earlier: Callable[..., None],
    why: Callable[..., str],
) -> None:
    named(engine, begun.id, elsewhere(where))
    quiet(SILENT_AFTER - timedelta(seconds=5))
    assert why() == ""
    quiet(timedelta(minutes=1))
    assert why() == why() == "", "it may be about to beat: nobody saw it silent before"
    seen_earlier()
    assert why().startswith("its step runs elsewhere, and its last heartbeat was at ")
    named(engine, begun.id, None)
    assert why() == "", "between two steps a scheduler may take its time"


@pytest.mark.parametrize("ended", [False, None])
def test_a_look_of_a_clock_that_was_ahead_counts_for_nothing(
    ended: bool | None,
    ledger: Ledger,
    begun: Transaction,
    fall_silent: Callable[[], None],
    seen_earlier: Callable[..., None],
    why: Callable[..., str],
) -> None:
    fall_silent()
    assert why(ended) == ""
    seen_earlier(-timedelta(days=1))
    assert why(ended) == why(ended) == ""
    assert len([event for event in ledger.events(begun.id) if event.what == SILENT]) == 2, "a look of now was noted"


@pytest.mark.parametrize("ended", [False, None])
@pytest.mark.parametrize("where", ["another machine", "here"])
def test_a_heartbeat_of_a_clock_that_was_set_back_is_judged_by_looks(
    where: str,
    ended: bool | None,
    engine: Engine,
    ledger: Ledger,
    begun: Transaction,
    start: Callable[[], Step],
    quiet: Callable[..., None],
    seen_earlier: Callable[..., None],
    why: Callable[..., str],
    tmp_path: Path,
) -> None:
    next_run, is_here = work_of(ledger, tmp_path, Run("tail", "run-2")), where == "here"
    step = start()
    step.does("heartbeat")
    if not is_here:
        named(engine, begun.id, elsewhere(where))
    quiet(-timedelta(hours=3))
    if is_here:
        assert why(ended) == ""
        assert not [event for event in ledger.events(begun.id) if event.what == SILENT], "it lives"
    step.end()
    assert why(ended) == "", "it may be about to beat"
    with pytest.raises(TailUnderWay):
        news(next_run, lambda run: ended)
    if not is_here:
        (left,) = recover(next_run, lambda run: ended).left
        assert "is yet to come, since the ledger's clock was set back; a run that looks 180 s after" in left.why
    seen_earlier()
    assert why(ended).startswith("its process is gone" if where == "here" else "its step runs elsewhere")
    assert news(next_run, lambda run: ended) == LEFT


def test_who_recovers_by_hand_hears_why_a_batch_is_left(
    engine: Engine, ledger: Ledger, begun: Transaction, tmp_path: Path, quiet: Callable[..., None]
) -> None:
    work = work_of(ledger, tmp_path, Run("by hand", "1"))

    def why(ended: bool | None) -> str:
        (left,) = recover(work, lambda run: ended).left
        return re.sub(r"is \d+ s old", "is old", left.why)

    quiet()
    assert why(False) == "its run has not ended"
    minutes = "its last heartbeat is old; only after 600 s no process counts as working on it"
    assert why(None) == minutes
    named(engine, begun.id, elsewhere("another machine"))
    assert why(False) == f"its run has not ended, and its step runs elsewhere: {minutes}"
    quiet(SILENT_AFTER)
    again = "its last heartbeat is old; a run that looks 180 s after a first look decides it"
    assert why(None) == again
    assert why(False) == f"its run has not ended, and its step runs elsewhere: {again}"
    named(engine, begun.id, this_process())
    assert why(None) == "its process is on this machine and has not ended"


def test_a_step_elsewhere_that_could_not_beat_for_long_lives_once_it_beats_again(
    ledger: Ledger,
    begun: Transaction,
    fall_silent: Callable[[], None],
    seen_earlier: Callable[..., None],
    why: Callable[..., str],
) -> None:
    fall_silent()
    assert why() == ""
    ledger.heartbeat(begun.id, begun.token)
    seen_earlier(3 * SILENT_AFTER)
    fall_silent()
    assert why() == "", "that it was silent before it beat says nothing of now"


def test_a_number_that_another_process_has_by_now_is_not_the_steps_process(
    engine: Engine, begun: Transaction, quiet: Callable[..., None], why: Callable[..., str]
) -> None:
    where, pid, started = this_process().rsplit("/", 2)
    named(engine, begun.id, f"{where}/{pid}/{int(started) - 1}")
    quiet()
    assert "its process is gone" in why()


def test_a_clock_that_is_set_back_lets_others_wait(
    start: Callable[[], Step], quiet: Callable[..., None], why: Callable[..., str]
) -> None:
    start().end()
    quiet(-timedelta(hours=1))  # the last heartbeat is an hour ahead by now
    assert why() == why(None) == ""


def test_a_settle_that_lives_and_did_not_get_through_decides_later(
    start: Callable[[], Step], quiet: Callable[..., None], why: Callable[..., str], ledger: Ledger, begun: Transaction
) -> None:
    """It pokes again from the same process, or from another one: it is no step of the run that it decides."""
    start().end()
    quiet()
    assert ledger.take_over(begun.id).token == 2
    assert "its process is gone" in why()


def test_a_retry_that_begins_while_another_batch_is_decided_is_left_alone(
    ledger: Ledger, begun: Transaction, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = ledger.begin(NAME, Kind.TAIL, [Range(0, 5, 9)], "tail", "run-2")
    where, pid, started = this_process().rsplit("/", 2)
    long_ago = begun.heartbeat - QUIET_AFTER - timedelta(seconds=1)
    with engine.begin() as connection:
        dead = {"process": f"{where}/{pid}/{int(started) - 1}", "heartbeat": long_ago}
        connection.execute(update(models.transactions).values(dead))

    def meanwhile(work: Work, taken: Transaction, lease: Lease) -> Decision:
        ledger.heartbeat(second.id, second.token)
        return resolve(work, taken, lease)

    monkeypatch.setattr(settle_module, "resolve", meanwhile)
    work = work_of(ledger, tmp_path, Run("tail", "run-3"))
    assert [item.transaction for item in settle_module.settle(work, lambda run: False)] == [begun.id]
    assert ledger.get(second.id).token == second.token


def test_between_steps_within_a_block_that_beats_a_process_is_named(
    ledger: Ledger, begun: Transaction, tmp_path: Path
) -> None:
    work = work_of(ledger, tmp_path, Run("tail", "run-1"))
    with work.heartbeat(begun.id, 1):
        with work.heartbeat(begun.id, 1):
            pass
        with pytest.raises(ZeroDivisionError), work.heartbeat(begun.id, 1):
            raise ZeroDivisionError
        assert ledger.get(begun.id).process == this_process()
    assert ledger.get(begun.id).process is None
    with work.heartbeat(begun.id, 1):
        assert ledger.get(begun.id).process == this_process()


def test_a_step_tells_its_end_to_a_ledger_that_does_not_answer_at_first(
    ledger: Ledger, begun: Transaction, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_module, "_AGAIN_SECONDS", 0.01)
    answers, rest = iter([False, False, True]), Ledger.release

    def at_last(self: Ledger, id_: str, token: int) -> None:
        if not next(answers):
            raise LedgerUnavailable("away")
        rest(self, id_, token)

    monkeypatch.setattr(Ledger, "release", at_last)
    work = work_of(ledger, tmp_path, Run("tail", "run-1"))
    with work.heartbeat(begun.id, 1):
        assert ledger.get(begun.id).process == this_process()
    assert ledger.get(begun.id).process is None
    # It does not keep a task for ever, and one that failed not at all.
    monkeypatch.setattr(Ledger, "release", lambda *_: (_ for _ in ()).throw(LedgerUnavailable("away")))
    at = time.monotonic()
    with pytest.raises(ZeroDivisionError), work.heartbeat(begun.id, 1):
        raise ZeroDivisionError
    assert time.monotonic() - at < work_module.REST_SECONDS / 10
    monkeypatch.setattr(work_module, "REST_SECONDS", 0.05)
    with work.heartbeat(begun.id, 1):
        pass


def test_of_a_run_that_settles_its_own_batch_dangles_and_others_wait_their_turn(
    ledger: Ledger, begun: Transaction, tmp_path: Path, quiet: Callable[..., None]
) -> None:
    own, next_, other = (Run("tail", "run-1"), Run("tail", "run-2"), Run("backfill", "run-1"))
    assert dangling_transactions(work_of(ledger, tmp_path, own), lambda run: False) == {
        begun.id: "it is of this very run"
    }
    assert dangling_transactions(work_of(ledger, tmp_path, next_), lambda run: False) == {}
    for run in (own, other):
        require_turn(work_of(ledger, tmp_path, run))
    with pytest.raises(TailUnderWay, match=f"run run-1 of tail works on transaction {begun.id}") as waits:
        require_turn(work_of(ledger, tmp_path, next_))
    assert (waits.value.transaction, waits.value.active) == (begun.id, True)
    # Nobody was heard of: nothing of it is touched, and it holds up nobody.
    quiet()
    require_turn(work_of(ledger, tmp_path, next_))
    assert ledger.get(begun.id).token == begun.token


def test_upserts_wait_for_a_quiet_batch_too(
    ledger: Ledger, begun: Transaction, tmp_path: Path, quiet: Callable[..., None]
) -> None:
    work = work_of(ledger, tmp_path, Run("tail", "run-2"), upserts=True)
    with pytest.raises(BatchUnderWay) as waits:
        require_alone(work)
    assert waits.value.active
    quiet()
    require_turn(work)
    with pytest.raises(BatchUnderWay) as waits:
        require_alone(work)
    assert not waits.value.active


def test_a_wait_for_a_batch_is_over_when_it_is_decided_or_nobody_works_on_it_any_more(
    ledger: Ledger, begun: Transaction, quiet: Callable[..., None]
) -> None:
    lively = awaited(TailUnderWay("", pipeline=NAME, transaction=begun.id, quiet_in=30))
    silent = awaited(BatchUnderWay("", pipeline=NAME, transaction=begun.id, active=False))
    for what in (lively, silent):
        assert not is_over(ledger, what, lambda run: False) and not is_over(ledger, what, lambda run: None)
    assert is_over(ledger, lively, lambda run: True)
    quiet()
    assert is_over(ledger, lively, lambda run: False)
    # A settle has looked at this one when it was quiet already: it would be woken for nothing again and again.
    assert not is_over(ledger, silent, lambda run: False)
    ledger.aborted(begun.id, 1, "given up")
    assert is_over(ledger, lively, lambda run: None) and is_over(ledger, silent, lambda run: None)


def test_a_wait_for_the_lease_is_over_when_it_is_free(ledger: Ledger) -> None:
    with ledger.lease(NAME, "somebody", 30), pytest.raises(LeaseHeld) as held, ledger.lease(NAME, "settle"):
        pass
    what = awaited(held.value)
    assert is_over(ledger, what, lambda run: None)
    with ledger.lease(NAME, "somebody", 30):
        assert not is_over(ledger, what, lambda run: True)


def test_of_other_obstacles_the_ledger_tells_nothing(ledger: Ledger) -> None:
    assert awaited(LedgerUnavailable("away")) == Awaited()
    assert not is_over(ledger, Awaited(), lambda run: True)


@pytest.mark.long
def test_each_step_names_its_process_while_it_works_and_takes_it_away(
    scenario: Callable[..., Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = scenario()
    pipeline.put(20)
    ledger, named = pipeline.work.ledger, set()

    def reach(point: Point) -> None:
        (live, *_) = ledger.last(NAME, 1)
        assert live.state not in LIVE or live.process == this_process(), point
        named.add(point.value.partition("-")[0])

    monkeypatch.setattr(steps, "reach", reach)
    planned = plan.tail(pipeline.work)
    assert planned is not None
    for step in (lambda *_: None, steps.open_instant, steps.append, steps.record, steps.commit):
        step(pipeline.work, planned.id, planned.token)
        assert ledger.get(planned.id).process is None
    assert named == {"open", "append", "record", "commit"}
    assert ledger.get(planned.id).state is State.COMMITTED


@pytest.mark.long
def test_a_commit_between_two_looks_of_a_settle_is_no_contradiction(
    scenario: Callable[..., Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeline is read, the other run commits, the ledger is read: it seems to be ahead of the table."""
    pipeline = scenario()
    pipeline.put(20)
    register(pipeline.work)
    waiting = [pipeline.prepare(pipeline.by("run-1"))]
    agreement = require_agreement
    looks: list[str] = []

    def looking(work: Work, seen: Timelines | None = None) -> Timeline:
        looks.append(work.run.run_id)
        if waiting:
            found = waiting.pop()
            steps.commit(pipeline.by("run-1"), found.id, found.token)
        return agreement(work, seen)

    monkeypatch.setattr(settle_module, "require_agreement", looking)
    assert settle_module.settle(pipeline.by("run-2"), lambda run: False) == []
    assert looks == ["run-2", "run-2"] and not waiting


@pytest.mark.long
def test_a_contradiction_that_stays_is_told_after_the_second_look(scenario: Callable[..., Scenario]) -> None:
    pipeline = scenario()
    pipeline.put(20)
    pipeline.batch("run-1")
    forget_all_instants(pipeline)
    with pytest.raises(LedgerAhead):
        settle_module.settle(pipeline.by("run-2"), lambda run: False)
