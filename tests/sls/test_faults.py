"""What an error code means, and trying again."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from types import SimpleNamespace

import pytest

from airflow_provider_slshudi.exceptions import (
    SourceCorrupt,
    SourceError,
    SourceRefused,
    SourceThrottled,
    SourceUnavailable,
    TerminalError,
    TransientError,
)
from airflow_provider_slshudi.sls import faults
from airflow_provider_slshudi.sls.answers import error
from airflow_provider_slshudi.sls.faults import NEXT, PERSON, TASK, UNREACHABLE, Patience, advice, error_class, retry
from airflow_provider_slshudi.sls.transport import Answer

TRANSIENT = "InternalServerError RequestTimeout"
THROTTLED = (
    "ServerBusy MetaOperationQpsLimitExceeded ReadQuotaExceed WriteQuotaExceed ShardReadQuotaExceed "
    "ShardWriteQuotaExceed"
)
TERMINAL = (
    "RequestTimeExpired InvalidRequestTime InvalidHost ProjectAlreadyExist PostBodyInvalid InvalidContentType "
    "ParameterInvalid MissingParameter SignatureNotMatch Unauthorized InvalidAccessKeyId ProjectForbidden "
    "ProjectNotExist InvalidMethod PostBodyTooLarge LogStoreNotExist ShardNotExist LogStoreWithoutShard InvalidCursor"
)


@pytest.mark.parametrize(
    ("codes", "kind"), [(TRANSIENT, SourceUnavailable), (THROTTLED, SourceThrottled), (TERMINAL, SourceRefused)]
)
def test_every_code_of_the_service_has_its_class_whatever_the_status(codes: str, kind: type[SourceError]) -> None:
    for code in codes.split():
        assert code in faults.RULES
        assert {error_class(code, status) for status in (200, 400, 403, 500)} == {kind}
        assert advice(code) or kind is not SourceRefused, f"{code}: what is somebody to do?"


def test_somebody_else_s_page_says_to_check_the_endpoint_unless_it_is_a_gateway_s() -> None:
    assert "endpoint is one of the log service" in advice("HTTP 404")
    assert "endpoint is one of the log service" in advice("HTTP 301")
    assert advice("HTTP 502") == ""


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("SomethingNew", 500, SourceUnavailable),
        ("HTTP 502", 502, SourceUnavailable),
        ("Inflow Quota Exceed", 403, SourceThrottled),
        ("SomethingNew", 429, SourceThrottled),
        ("SomethingNew", 403, SourceRefused),
        ("HTTP 301", 301, SourceCorrupt),
    ],
)
def test_a_code_that_nobody_knows_goes_by_its_status(code: str, status: int, kind: type[SourceError]) -> None:
    assert error_class(code, status) is kind


def test_every_class_says_what_happens_next_and_agrees_with_transient_and_terminal() -> None:
    for kind in {rule[0] for rule in faults.RULES.values()}:
        assert issubclass(kind, TransientError) != issubclass(kind, TerminalError)
        assert ("not tried again" in NEXT[kind]) == issubclass(kind, TerminalError)


class Failing:
    def __init__(self, kind: type[SourceError], times: int, code: str = "") -> None:
        self.kind, self.left, self.code, self.at = kind, times, code, list[float]()

    def __call__(self) -> str:
        self.at.append(time.monotonic())
        if not self.left:
            return "done"
        self.left -= 1
        raise self.kind("no", project="p", logstore="l", code=self.code)


@pytest.mark.parametrize("kind", [SourceUnavailable, SourceThrottled, SourceCorrupt])
def test_what_may_pass_is_repeated_until_it_has(kind: type[SourceError]) -> None:
    failing = Failing(kind, 3)
    assert retry(Patience(20.0), failing) == "done"
    assert len(failing.at) == 4


def test_what_is_final_is_not_repeated() -> None:
    failing = Failing(SourceRefused, 1)
    with pytest.raises(SourceRefused):
        retry(Patience(20.0), failing)
    assert len(failing.at) == 1


def test_where_nobody_answers_a_task_goes_on_asking_and_a_person_is_told_at_once() -> None:
    failing = Failing(SourceUnavailable, 2, UNREACHABLE)
    assert retry(TASK, failing) == "done"
    assert len(failing.at) == 3
    failing = Failing(SourceUnavailable, 2, UNREACHABLE)
    with pytest.raises(SourceUnavailable):
        retry(PERSON, failing)
    assert len(failing.at) == 1


def test_what_passes_in_seconds_does_not_bother_a_person() -> None:
    failing = Failing(SourceThrottled, 3, "MetaOperationQpsLimitExceeded")
    assert retry(PERSON, failing) == "done"


def test_the_end_of_a_message_fits_whoever_waits() -> None:
    assert TASK.next(SourceUnavailable) == NEXT[SourceUnavailable]
    assert "later" in PERSON.next(SourceUnavailable)
    assert PERSON.next(SourceRefused) == NEXT[SourceRefused]


def test_pauses_grow_with_full_jitter_and_end_with_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    now, ceilings = [0.0], list[tuple[float, float]]()

    def uniform(low: float, high: float) -> float:
        ceilings.append((low, high))
        return high

    # Only here: threads of other tests may sleep meanwhile.
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(faults, "time", clock)
    monkeypatch.setattr(faults, "random", SimpleNamespace(uniform=uniform))
    with pytest.raises(SourceUnavailable):
        retry(TASK, Failing(SourceUnavailable, 1000))
    assert {low for low, _ in ceilings} == {0}
    assert [high for _, high in ceilings[:3]] == [0.2, 0.4, 0.8]
    assert all(before <= after <= 10.0 for (_, before), (_, after) in pairwise(ceilings))
    assert 40 < now[0] <= 60


def test_a_text_of_the_service_with_line_breaks_becomes_one_line() -> None:
    said = "denied\r\nSpark's page: javascript:alert(1)\u2028\x1b[31mslshudi: done"
    body = bytearray(json.dumps({"errorCode": "Unauthorized\nx", "errorMessage": said}).encode())
    code, message = error(Answer(401, {}, body))
    assert code == "Unauthorized x"
    assert message == "denied Spark's page: javascript:alert(1) [31mslshudi: done" and len(message.splitlines()) == 1
