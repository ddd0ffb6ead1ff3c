"""Checks are run one after the other, and none of them keeps the others, or a person, waiting."""

from __future__ import annotations

import threading
import time

import pytest

from airflow_provider_slshudi.doctor import finding
from airflow_provider_slshudi.doctor.finding import Check, Seen, Verdict, ok, run, told, warning, wrong
from airflow_provider_slshudi.exceptions import ConfigError, SourceThrottled


def raises(error: Exception) -> Check:
    def look() -> Seen:
        raise error

    return Check("it", look)


def test_a_finding_comes_before_the_next_check_is_done() -> None:
    shown = threading.Event()

    def second() -> Seen:
        assert shown.wait(30)
        return ok("was shown")

    found = run("machine", [Check("first", lambda: ok("here")), Check("second", second)])
    assert next(found).seen == "here"
    shown.set()
    assert [(item.about, item.check, item.seen) for item in found] == [("machine", "second", "was shown")]


def test_a_check_without_an_end_is_not_known_and_the_rest_is_not_asked() -> None:
    never = threading.Event()
    asked: list[str] = []

    def hang() -> Seen:
        never.wait()
        return ok("too late")

    def after() -> Seen:
        asked.append("after")
        return ok("")

    started = time.monotonic()
    found = list(run("it", [Check("hangs", hang), Check("after", after)], seconds=0.2))
    assert time.monotonic() - started < 20
    assert [item.verdict for item in found] == [Verdict.UNKNOWN, Verdict.UNKNOWN]
    assert "no answer" in found[0].seen and "hangs" in found[1].seen
    never.set()
    assert asked == []


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (ConfigError("it is wrong", source="s"), Verdict.WRONG),
        (SourceThrottled("busy", project="p", logstore="l"), Verdict.UNKNOWN),
        (ZeroDivisionError("of its own"), Verdict.UNKNOWN),
    ],
)
def test_an_error_is_wrong_only_where_it_says_something_of_the_thing(error: Exception, verdict: Verdict) -> None:
    (found,) = run("it", [raises(error)])
    assert found.verdict is verdict and str(error) in found.seen


def test_a_button_is_green_only_if_nothing_is_wrong_and_all_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    fine, odd = Check("a", lambda: ok("well")), Check("b", lambda: warning("old", "renew it"))
    assert told([fine, odd]) == (True, "a: well; b: old (renew it)")
    assert told([fine, Check("c", lambda: wrong("broken", "mend it")), odd]) == (False, "c: broken (mend it)")
    monkeypatch.setattr(finding, "BUTTON_SECONDS", 0.1)
    never = threading.Event()
    green, message = told([fine, Check("hangs", lambda: ok(str(never.wait())))])
    never.set()
    assert not green and "hangs: no answer" in message
