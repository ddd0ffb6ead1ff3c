"""Whether a consumer's take is another run's to have: once the one that took it is over, as far as that is known."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, update

from airflow_provider_slshudi.downstream.changes import take
from airflow_provider_slshudi.exceptions import ConsumerUnderWay
from airflow_provider_slshudi.ledger import models
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.pipeline_rows import COMMANDS
from airflow_provider_slshudi.ledger.records import Feed
from airflow_provider_slshudi.system.processes import this_process
from airflow_provider_slshudi.transaction.context import Run
from tests.commits import Committing
from tests.ledgers import engine_in
from tests.pipelines import ad_events

NAME, CONSUMER = "ad_events", "report"
FIRST, OTHER = Run("reports", "run-1", "here"), Run("reports", "run-2", "here")
ELSEWHERE = "machine/boot/pid:[1]+/7/8"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with engine_in(tmp_path / "ledger.db") as engine:
        yield engine


@pytest.fixture
def ledger(engine: Engine, tmp_path: Path) -> Ledger:
    """With two commits and a consumer of them."""
    committing = Committing(Ledger(engine), ad_events(tmp_path))
    committing.commit(0)
    committing.commit(0)
    committing.ledger.subscribe(NAME, CONSUMER, Feed.COMMITS, 0, 60)
    return committing.ledger


def change(engine: Engine, **values: object) -> None:
    with engine.begin() as connection:
        connection.execute(update(models.consumers).values(**values))


def a_day_passes(engine: Engine, ledger: Ledger) -> None:
    change(engine, changed=ledger.now() - timedelta(days=1, minutes=1))


def is_given(ledger: Ledger, over: bool | None, run: Run = OTHER) -> bool:
    try:
        changes = take(ledger, NAME, CONSUMER, run, lambda asked: over)
    except ConsumerUnderWay:
        return False
    assert changes is not None and changes.key.rpartition("-")[0] == f"{NAME}/{CONSUMER}/1-2"
    return True


@pytest.mark.parametrize(
    ("over", "at_once", "after_a_day"), [(True, True, True), (None, False, True), (False, False, False)]
)
def test_a_run_that_goes_on_keeps_what_it_took_however_long_it_takes(
    engine: Engine, ledger: Ledger, over: bool | None, at_once: bool, after_a_day: bool
) -> None:
    assert is_given(ledger, None, FIRST)
    assert is_given(ledger, over) is at_once
    if not at_once:
        a_day_passes(engine, ledger)
        assert is_given(ledger, over) is after_a_day


def test_the_same_places_of_other_commits_have_another_key(engine: Engine, ledger: Ledger) -> None:
    """A ledger that was lost counts anew, by completion: a commit that was recovered late stands elsewhere then."""
    keys = []
    for instant in (None, None, "20260101000000009"):
        if instant is not None:
            with engine.begin() as connection:
                connection.execute(
                    update(models.transactions).values(instant=instant).where(models.transactions.c.place == 2)
                )
        changes = take(ledger, NAME, CONSUMER, FIRST, lambda run: None)
        assert changes is not None
        keys.append(changes.key)
    assert keys[0] == keys[1] != keys[2]


def test_who_commits_is_told_the_place_also_when_it_says_so_twice(ledger: Ledger, tmp_path: Path) -> None:
    done = Committing(ledger, ad_events(tmp_path), end=2).commit(0)
    assert (done.place, ledger.committed(done.id, done.token, str(done.completed)).place) == (3, 3)


def test_a_script_keeps_what_it_took_until_its_process_is_gone(engine: Engine, ledger: Ledger) -> None:
    script = Run(COMMANDS, this_process())
    assert is_given(ledger, None, script)
    a_day_passes(engine, ledger)
    assert not is_given(ledger, None), "this process lives"

    code = "from airflow_provider_slshudi.system.processes import this_process; print(this_process())"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    change(engine, process=ended, changed=ledger.now())
    assert is_given(ledger, None)


def test_what_a_script_of_another_machine_took_is_given_again_after_a_day(engine: Engine, ledger: Ledger) -> None:
    """No look from here tells whether that process lives: its container, say, is gone for good."""
    assert is_given(ledger, None, Run(COMMANDS, ELSEWHERE))
    change(engine, process=ELSEWHERE)
    assert not is_given(ledger, None)
    a_day_passes(engine, ledger)
    assert is_given(ledger, None)
