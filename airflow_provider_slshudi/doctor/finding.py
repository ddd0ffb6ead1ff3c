"""A finding of `slshudi doctor`, and clocks that differ."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from airflow_provider_slshudi.exceptions import SlsHudiError, SourceThrottled

SECONDS = 60.0
"""How long a command waits for all checks of one thing."""
BUTTON_SECONDS = 18.0
"""How long a form's test button waits: a web server runs it, and people look at it."""


class Verdict(str, Enum):
    """What a check says of the thing; UNKNOWN is never OK."""

    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"
    UNKNOWN = "not known"


@dataclass(frozen=True)
class Seen:
    """A check's answer: what was seen, and how to mend it, where there is something to mend."""

    verdict: Verdict
    what: str
    mend: str = ""


@dataclass(frozen=True)
class Check:
    """A check by its name; `look` gives its answer, or raises."""

    name: str
    look: Callable[[], Seen]


@dataclass(frozen=True)
class Finding:
    """The answer of a check of something, a machine, connection or pipeline."""

    about: str
    check: str
    verdict: Verdict
    seen: str
    mend: str


def ok(what: str) -> Seen:
    """All is as it should be."""
    return Seen(Verdict.OK, what)


def warning(what: str, mend: str) -> Seen:
    """Pipelines run, and something is not as it should be."""
    return Seen(Verdict.WARNING, what, mend)


def wrong(what: str, mend: str = "") -> Seen:
    """Pipelines do not run so; `mend` is left out where `what` says it already."""
    return Seen(Verdict.WRONG, what, mend)


def unknown(what: str, mend: str = "") -> Seen:
    """The check could not look, or nothing follows from what it saw."""
    return Seen(Verdict.UNKNOWN, what, mend)


def run(about: str, checks: Iterable[Check], seconds: float = SECONDS) -> Iterator[Finding]:
    """The findings of checks, each as it comes; what is not done within `seconds` is not known.

    Checks run in a thread of their own: no time limit ends the search for a name, or a database that says nothing.
    """
    queued_checks, answers, over = list(checks), queue.SimpleQueue[Seen](), threading.Event()

    def work() -> None:
        for check in queued_checks:
            if over.is_set():
                return
            answers.put(_answer(check))

    threading.Thread(target=work, name=f"slshudi-doctor-{about}", daemon=True).start()
    deadline = time.monotonic() + seconds
    for place, check in enumerate(queued_checks):
        try:
            answer = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            over.set()
            answer = unknown(f"no answer within {seconds:.0f} s", "see whether it answers at all from this machine")
            yield _finding(about, check, answer)
            for other in queued_checks[place + 1 :]:
                yield _finding(about, other, unknown(f"not asked: {check.name} gave no answer"))
            return
        yield _finding(about, check, answer)


def told(checks: Iterable[Check]) -> tuple[bool, str]:
    """The findings for a test button: whether nothing is wrong and all is known, and what was seen."""
    findings = list(run("connection", checks, BUTTON_SECONDS))
    bad, open_ = (
        [item for item in findings if item.verdict is verdict] for verdict in (Verdict.WRONG, Verdict.UNKNOWN)
    )
    shown = bad or open_ or findings
    lines = [f"{item.check}: {item.seen}{f' ({item.mend})' if item.mend else ''}" for item in shown]
    return shown is findings, "; ".join(lines)


def _answer(check: Check) -> Seen:
    try:
        return check.look()
    except SourceThrottled as error:  # says nothing of what was asked
        return unknown(str(error))
    except SlsHudiError as error:
        return wrong(str(error))
    except Exception as error:  # a check that fails must not keep the others from their answers
        return unknown(f"the check itself failed: {type(error).__name__}: {error}", "report it")


def _finding(about: str, check: Check, seen: Seen) -> Finding:
    return Finding(about, check.name, seen.verdict, seen.what, seen.mend)


_AGREE_SECONDS = 5.0


def compared(ahead: float, whose: str, stops: bool) -> Seen:
    """This machine's clock beside another's, by the seconds that it is ahead; `stops` if pipelines stop for it."""
    if abs(ahead) <= _AGREE_SECONDS:
        return ok(f"this machine's and {whose} agree to {_AGREE_SECONDS:.0f} s")
    what = f"this machine's clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} {whose}"
    mend = "set the one that is wrong, and keep both by NTP"
    return wrong(what, mend) if stops else warning(what, mend)
