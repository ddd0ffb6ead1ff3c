"""Several processes at once on one ledger: exactly one wins."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_slshudi.ledger.engine import open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Kind, RangeTotals, State
from airflow_provider_slshudi.planning.ranges import Range, merge

PIPELINE = "clicks"
WORKERS, ROUNDS = 3, 5


def _work(url: str, job: Callable[[Ledger, int, int], str], number: int, start: Any, results: Any) -> None:
    ledger = Ledger(open_engine(url))
    ledger.pipelines()
    for turn in range(ROUNDS):
        start.wait(60)
        try:
            results.put((turn, job(ledger, number, turn)))
        except Exception as error:
            results.put((turn, type(error).__name__))
    # A lease that was won ends with its holder's process.
    start.wait(60)


def race(url: str, job: Callable[[Ledger, int, int], str]) -> list[Counter[str]]:
    """What the workers answered in each round; all start each round together."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([Ledger.__module__])
    start, results = processes.Barrier(WORKERS), processes.Queue()
    workers = [processes.Process(target=_work, args=(url, job, number, start, results)) for number in range(WORKERS)]
    for worker in workers:
        worker.start()
    rounds: list[Counter[str]] = [Counter() for _ in range(ROUNDS)]
    for _ in range(WORKERS * ROUNDS):
        turn, answer = results.get(timeout=60)
        rounds[turn][answer] += 1
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    return rounds


def begin(ledger: Ledger, number: int, turn: int) -> str:
    # overlapping, never equal, and in another order of shards
    ranges = [Range(shard, turn * 10 + number, turn * 10 + 5 + number) for shard in range(4)]
    ledger.begin(PIPELINE, Kind.TAIL, ranges[::-1] if number % 2 else ranges, "dag", f"run-{turn}-{number}")
    return "won"


def test_of_those_who_reserve_the_same_cursors_one_wins(ledger: Ledger, url: str) -> None:
    assert race(url, begin) == [Counter(won=1, RangeConflict=WORKERS - 1)] * ROUNDS
    reserved = ledger.reserved(PIPELINE)
    assert len(reserved) == ROUNDS * 4
    assert sum(map(len, reserved)) == sum(map(len, merge(reserved)))


def register(ledger: Ledger, number: int, turn: int) -> str:
    name = f"pipeline-{number}-{turn}"
    ledger.register(name, "sls://shop/logs", f"file:///lake/{turn}")
    ledger.begin(name, Kind.TAIL, [Range(0, 0, 10)], "dag", "run")
    return "won"


def test_of_those_who_register_a_table_one_begins_a_batch(ledger: Ledger, url: str) -> None:
    """A name that has begun nothing yet leaves its table to the next, and finds out when it begins."""
    for answers in race(url, register):
        assert answers["won"] == 1
        assert answers["PipelineConflict"] + answers["LedgerError"] == WORKERS - 1
    assert len(ledger.pipelines()) == ROUNDS + 1


def register_same(ledger: Ledger, _number: int, turn: int) -> str:
    ledger.register(f"pipeline-{turn}", "sls://shop/logs", f"file:///lake/{turn}")
    return "done"


def test_all_may_register_the_same(ledger: Ledger, url: str) -> None:
    assert race(url, register_same) == [Counter(done=WORKERS)] * ROUNDS


def open_(ledger: Ledger, number: int, turn: int) -> str:
    id_ = ledger.live(PIPELINE)[turn].id
    ledger.opened(id_, 1, f"{turn}-{number}")
    return "won"


def begin_rounds(ledger: Ledger) -> list[str]:
    """One transaction for each round."""
    return [
        ledger.begin(PIPELINE, Kind.TAIL, [Range(0, turn * 10, turn * 10 + 10)], "dag", f"run-{turn}").id
        for turn in range(ROUNDS)
    ]


def test_of_those_who_change_a_state_one_wins(ledger: Ledger, url: str) -> None:
    begin_rounds(ledger)
    assert race(url, open_) == [Counter(won=1, IllegalTransition=WORKERS - 1)] * ROUNDS
    assert {transaction.state for transaction in ledger.live(PIPELINE)} == {State.OPEN}


def take_over(ledger: Ledger, _number: int, turn: int) -> str:
    return str(ledger.take_over(ledger.live(PIPELINE)[turn].id).token)


def test_everybody_who_takes_over_gets_a_token_of_their_own(ledger: Ledger, url: str) -> None:
    begin_rounds(ledger)
    assert race(url, take_over) == [Counter(["2", "3", "4"])] * ROUNDS


def take_lease(ledger: Ledger, number: int, turn: int) -> str:
    # what is held while the lease is: a second one inside would find the first one's note
    with ledger.lease(PIPELINE, f"worker-{number}", wait=30):
        id_ = ledger.last(PIPELINE, 1)[0].id
        before = len(ledger.events(id_))
        ledger.note(id_, "decided", f"{turn}")
        return "alone" if len(ledger.events(id_)) == before + 1 else "together"


def test_one_decides_at_a_time(ledger: Ledger, url: str) -> None:
    begin_rounds(ledger)
    assert race(url, take_lease) == [Counter(alone=WORKERS)] * ROUNDS


held: list[object] = []


def try_lease(ledger: Ledger, number: int, turn: int) -> str:
    lease = ledger.lease(f"pipeline-{turn}", f"worker-{number}")
    lease.__enter__()
    held.append(lease)  # a lease that is forgotten is released
    return "won"


def test_of_those_who_take_the_lease_one_wins(ledger: Ledger, url: str) -> None:
    for turn in range(ROUNDS):
        register_same(ledger, 0, turn)
    assert race(url, try_lease) == [Counter(won=1, LeaseHeld=WORKERS - 1)] * ROUNDS


def run_batch(ledger: Ledger, number: int, turn: int) -> str:
    """A whole batch between those of the others, so that commits merge with what others commit."""
    cursor = (turn * WORKERS + number) * 2
    wanted = Range(0, cursor, cursor + 2)
    id_ = ledger.begin(PIPELINE, Kind.BACKFILL, [wanted], "dag", f"run-{turn}-{number}").id
    ledger.opened(id_, 1, f"{turn}-{number}")
    ledger.prepared(id_, 1, {}, [RangeTotals(wanted, 1, 1, 1, 1)])
    ledger.committed(id_, 1, f"{turn}-{number}")
    return "done"


def test_commits_side_by_side_lose_no_coverage(ledger: Ledger, url: str) -> None:
    assert race(url, run_batch) == [Counter(done=WORKERS)] * ROUNDS
    assert ledger.coverage(PIPELINE) == [Range(0, 0, WORKERS * ROUNDS * 2)]


@pytest.mark.parametrize("state", [State.COMMITTED])
def test_a_change_repeated_by_several_takes_effect_once(ledger: Ledger, url: str, state: State) -> None:
    for turn, id_ in enumerate(begin_rounds(ledger)):
        ledger.opened(id_, 1, str(turn))
        ledger.prepared(id_, 1, {}, [RangeTotals(ledger.ranges(id_)[0], 1, 1, 1, 1)])
    assert race(url, commit_first) == [Counter(done=WORKERS)] * ROUNDS
    for transaction in ledger.last(PIPELINE, ROUNDS):
        assert transaction.state is state
        assert [event.what for event in ledger.events(transaction.id)].count("COMMITTED") == 1


def commit_first(ledger: Ledger, _number: int, turn: int) -> str:
    id_ = ledger.last(PIPELINE, ROUNDS)[ROUNDS - 1 - turn].id
    ledger.committed(id_, 1, "20261121000000000")
    return "done"
