"""A driver in cluster mode and the task that it works for, over a real socket."""

from __future__ import annotations

import json
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_slshudi.exceptions import ConfigError, JobFailed
from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.handover.messages import (
    FILE,
    VERSION,
    Done,
    Job,
    Line,
    Reply,
    Report,
    Told,
    decode,
    encode,
)
from airflow_provider_slshudi.spark import driver_endpoint, keyserver
from airflow_provider_slshudi.spark.driver import remote
from airflow_provider_slshudi.spark.driver.remote import Remote
from airflow_provider_slshudi.spark.driver_endpoint import HOST, DriverEndpoint
from airflow_provider_slshudi.spark.keyserver import KeyServer, Place
from airflow_provider_slshudi.system.processes import clock
from tests.waiting import until

ORDER = JobOrder({"name": "ad_events"}, "t-1", 3, "20260101000000000")
WORK = Job(Verb.APPEND, ORDER)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyserver, "_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(remote, "BEAT_SECONDS", 0.05)
    # A driver puts another one in its place.
    monkeypatch.setattr(sys, "stdout", sys.stdout)


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Iterator[DriverEndpoint]:
    made = DriverEndpoint(WORK, lambda question: b"keys " + question.encode(), {HOST: "127.0.0.1"})
    yield made
    made.close()


@pytest.fixture
def file(task: DriverEndpoint, tmp_path: Path) -> Path:
    """The task's file, as a cluster's manager brings it."""
    with task.file() as made:
        assert made.name == FILE and made.stat().st_mode & 0o777 == 0o600
        path = tmp_path / FILE
        path.write_bytes(made.read_bytes())
    assert not made.exists()
    return path


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How the driver's process and its JVM were ended."""
    found: list[int] = []

    def end(status: int) -> None:
        found.append(status)
        threading.Event().wait()  # as nothing comes after the end of a process

    monkeypatch.setattr("os._exit", end)
    return found


def jvm(halt: Callable[[int], object]) -> Any:
    runtime = SimpleNamespace(halt=halt)
    return SimpleNamespace(
        java=SimpleNamespace(lang=SimpleNamespace(Runtime=SimpleNamespace(getRuntime=lambda: runtime)))
    )


def failing(monkeypatch: pytest.MonkeyPatch, errors: Iterable[Exception]) -> None:
    """The next questions fail with these errors."""
    whole, left = Place.ask, iter(errors)

    def ask(self: Place, question: str = "") -> bytes:
        for error in left:
            raise error
        return whole(self, question)

    monkeypatch.setattr(Place, "ask", ask)


def test_a_driver_gets_its_order_and_where_its_tasks_ask_and_its_lines_arrive_once(
    task: DriverEndpoint, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    driver = Remote(file)
    assert driver.job.order == ORDER and driver.job.verb is Verb.APPEND
    assert driver.keys.ask("who?") == b"keys who?"
    assert not file.exists(), "no executor's Python needs it"
    driver.start(None)
    lines = [f"line {number} \u65e5\U0001f600" * 100 for number in range(100)]
    print("\n".join(lines), end="")
    heard: list[Told] = []
    until("the first line", lambda: gathered(task, heard) > 1)
    assert Done() not in heard
    driver.tell(Done())
    driver.close()
    heard += task.drain_reports()
    assert sorted(text_of(heard[1:])) == sorted(lines) and Done() in heard
    assert task.lost() == ""
    assert capsys.readouterr().out.splitlines() == lines, "they are in the container's log, too"


def gathered(task: DriverEndpoint, heard: list[Told]) -> int:
    heard += task.drain_reports()
    return len(heard)


def text_of(heard: Iterable[Told]) -> list[str]:
    return [message.text for message in heard if isinstance(message, Line)]


def test_a_report_that_comes_again_is_heard_once(task: DriverEndpoint, file: Path) -> None:
    place = Place.from_json(file.read_text())
    for first, lines in ((0, ["a"]), (1, ["b", "c"]), (1, ["b", "c"]), (1, ["b", "c", "d"])):
        place.ask(encode(Report("me", "host", first, [Line(text) for text in lines])))
    assert text_of(task.drain_reports()) == ["the driver runs on host", "a", "b", "c", "d"]


def test_only_one_driver_gets_the_order(task: DriverEndpoint, file: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    again.write_bytes(file.read_bytes())
    Remote(file)
    with pytest.raises(JobFailed, match=r"another driver, on .* has this work"):
        Remote(again)


def test_a_driver_that_comes_when_the_task_is_gone_does_nothing(task: DriverEndpoint, file: Path) -> None:
    task.close()
    with pytest.raises(JobFailed, match=r"not there any more: 127\.0\.0\.1:.*Connection refused"):
        Remote(file)


def test_a_driver_ends_itself_and_its_jvm_once_the_task_is_gone(
    task: DriverEndpoint, file: Path, ended: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "GONE_SECONDS", 0.5)
    Remote(file).start(jvm(ended.append))
    threading.Event().wait(0.7)
    assert ended == []
    task.close()
    until("the end of the driver", lambda: len(ended) == 2)


def test_a_driver_whose_tasks_machine_does_not_answer_ends_itself_later(
    task: DriverEndpoint, file: Path, ended: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "GONE_SECONDS", 0.0)
    monkeypatch.setattr(remote, "LOST_SECONDS", 1.0)

    driver = Remote(file)
    reached = clock()
    failing(monkeypatch, repeat(OSError("timed out")))
    driver.start(jvm(ended.append))
    until("the end of the driver", lambda: len(ended) == 2)
    assert clock() - reached >= 0.9


def test_a_jvm_that_does_not_answer_keeps_no_driver(
    task: DriverEndpoint, file: Path, ended: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "GONE_SECONDS", 0.0)
    monkeypatch.setattr(remote, "_HALT_SECONDS", 0.1)
    Remote(file).start(jvm(lambda _: threading.Event().wait()))
    task.close()
    until("the end of the driver's Python", lambda: len(ended) == 1)


def test_hiccups_of_any_kind_end_no_driver(
    task: DriverEndpoint, file: Path, ended: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Remote(file)
    failing(monkeypatch, [RuntimeError("anything"), ValueError("no JSON"), ConnectionError("cut")])
    driver.start(jvm(ended.append))
    print("said after all")
    until("the line", lambda: Line("said after all") in task.drain_reports())
    driver.tell(Done())
    driver.close()
    assert task.drain_reports() == [Done()] and ended == []


def test_the_last_report_has_the_patience_of_the_others(
    task: DriverEndpoint, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Remote(file)
    failing(monkeypatch, [OSError("no route")] * 5)
    driver.tell(Done())
    driver.close()
    assert Done() in task.drain_reports() and task.ended_for() >= 0


def test_another_that_listens_at_its_port_is_not_the_task(
    task: DriverEndpoint, file: Path, ended: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "GONE_SECONDS", 0.5)
    monkeypatch.setattr(remote, "LOST_SECONDS", 600.0)
    Remote(file).start(jvm(ended.append))
    port = Place.from_json(task_place(task)).address.port
    task.close()
    other = KeyServer(lambda _: b"{}", "127.0.0.1", "127.0.0.1", port)
    try:
        until("the end of the driver", lambda: len(ended) == 2)
    finally:
        other.close()


def task_place(task: DriverEndpoint) -> str:
    with task.file() as file:
        return file.read_text()


def test_a_driver_that_falls_silent_is_lost_and_one_that_never_came_is_not(
    task: DriverEndpoint, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_endpoint, "LOST_SECONDS", 0.0)
    assert task.lost() == "", "it waits for its turn in a queue, say"
    Remote(file)
    assert "was not heard of" in task.lost()
    monkeypatch.setattr(driver_endpoint, "LOST_SECONDS", 60.0)
    assert task.lost() == "" and task.ended_for() < 0


def test_a_driver_that_has_reported_for_the_last_time_is_not_lost_whatever_comes_late(
    task: DriverEndpoint, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_endpoint, "LOST_SECONDS", 0.0)
    place = Place.from_json(file.read_text())
    place.ask(encode(Report("me", "host", 0, [Line("said")], last=True)))
    place.ask(encode(Report("me", "host", 0, [])))
    assert task.lost() == "" and task.ended_for() >= 0


def of_version(version: object, **fields: object) -> str:
    return json.dumps({"version": version, "kind": "report", "driver": "d", "host": "h", **fields})


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        "",
        "[" * 100_000,
        of_version(VERSION, messages=3),
        of_version(VERSION, messages=[1]),
        of_version(VERSION, messages=[{"kind": "job"}]),
        of_version(VERSION, first="a"),
        of_version(VERSION, of_another_version=1),
        of_version(VERSION + 1),
        of_version(None),
        encode(Line("no report")),
    ],
)
def test_what_is_no_report_is_answered_and_changes_nothing(task: DriverEndpoint, file: Path, text: str) -> None:
    place = Place.from_json(file.read_text())
    assert b"did not understand" in place.ask(text)
    assert task.drain_reports() == [] and task.unasked()


def test_a_driver_of_another_version_does_nothing_and_says_so(
    task: DriverEndpoint, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_today = encode(Reply()).replace(f'"version": {VERSION}', f'"version": {VERSION + 1}')
    monkeypatch.setattr(Place, "ask", lambda *_: of_today.encode())
    with pytest.raises(JobFailed, match=f"it is of version {VERSION + 1} of these messages"):
        Remote(file)


def test_a_message_that_cannot_be_read_is_not_quoted() -> None:
    secret = encode(Job(Verb.APPEND, ORDER, {"SLSHUDI_SLS_ACCESS_KEY_SECRET": "s3cret"}))
    assert isinstance(decode(secret), Job) and "s3cret" not in repr(decode(secret))
    for text in (secret[:-3], secret.replace('"token": 3', '"token": "three"'), secret.replace('"job"', '"wrk"')):
        with pytest.raises(ValueError, match="no message") as error:
            decode(text)
        assert "s3cret" not in "".join(traceback.format_exception(error.value))


def test_a_port_that_cannot_be_used_is_told() -> None:
    with pytest.raises(ConfigError, match=r"spark\.slshudi|port 99999") as error:
        DriverEndpoint(WORK, None, {keyserver.PORT: "99999"})
    assert error.value.field == keyserver.PORT
