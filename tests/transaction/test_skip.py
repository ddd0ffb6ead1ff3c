"""Log groups that cannot be read stop a pipeline until an operator skips them, which stays in ledger and table."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_slshudi import cli
from airflow_provider_slshudi.exceptions import ConfigError, SourceError
from airflow_provider_slshudi.handover.names import Act
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.local.process import LocalSls
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.repair.actions import perform
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.repair.skip import SKIPPED, parsed
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.transaction import plan, steps
from airflow_provider_slshudi.transaction.plan import BackfillRequest
from airflow_provider_slshudi.transaction.settle import settle
from tests.scenarios import Scenario

Make = Callable[..., Scenario]


def damage(server: LocalSls, pipeline: Scenario) -> bytes:
    """Makes the third log group of the logstore one that no decoder takes; returns its bytes."""
    logstore = pipeline.work.pipeline.source.logstore
    (file,) = [
        file
        for file in server.directory.rglob("*")
        if file.is_file() and logstore in str(file) and b"event-25" in file.read_bytes()
    ]
    content = bytearray(file.read_bytes())
    at = content.index(b"\x0a\x08event_id\x12\x08event-25")
    content[at] = 0x0F
    file.write_bytes(content)
    return bytes(content)


def test_a_log_group_that_cannot_be_read_is_skipped_for_good(
    scenario: Make, server: LocalSls, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(50)
    damaged = damage(server, pipeline)
    begin = pipeline.work.connect().begin(0)
    with pytest.raises(Exception, match=f"DecodeError: shard 0 cursor {begin}: .* no LogGroupList"):
        pipeline.batch("run-1")
    settle(pipeline.by("run-2"), lambda run: True)

    monkeypatch.setattr("airflow_provider_slshudi.cli.repair.work_of", lambda name: pipeline.by("skip-1"))
    out = io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    assert cli.main(["skip", "ad_events", f"0:{begin}-{begin + 5}"]) == 0
    rows = [line for line in out.getvalue().splitlines() if "LogGroupList" in line]
    assert len(rows) == 1 and str(begin + 2) in rows[0], out.getvalue()
    assert pipeline.work.ledger.coverage("ad_events") == []

    bad = Range(0, begin + 2, begin + 3)
    assert cli.main(["skip", "ad_events", f"0:{bad.begin}-{bad.end}", "--reason", "damaged at the service"]) == 0
    assert pipeline.work.ledger.coverage("ad_events") == [bad]
    (deed,) = pipeline.work.ledger.audit_entries("ad_events", 5)
    assert (deed.act, deed.result) == ("skip", out.getvalue().splitlines()[-1])
    assert f"records {bad} as a gap; 1 log groups are kept in .hoodie/slshudi/skipped/" in str(deed.result)
    (skipped,) = pipeline.work.ledger.gaps("ad_events", pipeline.work.ledger.now().replace(year=2000))
    assert skipped[1] == Range(*bad_of(bad), gap=True)
    (told,) = [event for event in pipeline.work.ledger.events(skipped[0]) if event.what == SKIPPED]
    assert "damaged at the service" in told.detail
    (kept,) = Path(pipeline.work.storage.full(f".hoodie/slshudi/skipped/{skipped[0]}")).iterdir()
    assert kept.name == f"0-{bad.begin}.pb" and kept.read_bytes() in damaged and b"event-25" in kept.read_bytes()

    done = pipeline.batch("run-3")
    assert (done.state, done.rows) == (State.COMMITTED, 40)
    assert plan.left_of(pipeline.work, BackfillRequest(everything=True)) == []
    for _ in range(2):
        proof = verify(pipeline.work, source=True)
        assert proof.ok, proof.complaint()
        assert [(item.begin, item.end) for item in proof.ranges if item.gap] == [(bad.begin, bad.end)]
        rebuild(pipeline.by("rebuild"))
    assert pipeline.work.ledger.coverage("ad_events") == [Range(0, begin, begin + 5)]


def bad_of(item: Range) -> tuple[int, int, int]:
    return item.shard, item.begin, item.end


def test_cursors_that_were_read_or_that_the_service_does_not_hold_are_not_skipped(scenario: Make) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(30)
    pipeline.batch("run-1")
    begin = pipeline.work.connect().begin(0)

    def skip(cursors: str) -> str:
        return perform(pipeline.by(f"skip-{cursors}"), lambda run: None, Act.SKIP, "ada", "why not", None, cursors)

    with pytest.raises(ConfigError, match="skip needs cursors, as SHARD:BEGIN-END"):
        skip("")
    with pytest.raises(ConfigError, match="a batch has read all of it"):
        skip(f"0:{begin}-{begin + 3}")
    with pytest.raises(ConfigError, match="the service holds only"):
        skip(f"0:{begin + 2}-{begin + 9}")
    with pytest.raises(ConfigError, match="the logstore has no shard 7"):
        skip("7:1-2")
    assert len(pipeline.work.ledger.coverage("ad_events")) == 1


@pytest.mark.parametrize(
    "fault",
    [
        {"operations": "pull_logs", "do": "expired_token"},
        {"operations": "pull_logs", "do": "quota"},
        {"do": "error", "status": 503, "code": "ServerBusy"},
        {"do": "drop"},
    ],
)
def test_a_service_that_gives_nothing_now_loses_no_bytes(
    scenario: Make, server: LocalSls, fault: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(50)
    work = pipeline.by("skip-1")
    begin = work.connect().begin(0)

    def opened(*given: Any) -> Any:
        done = open_instant(*given)
        server.faults = {"rules": [fault]}
        return done

    open_instant = steps.open_instant
    monkeypatch.setattr("airflow_provider_slshudi.transaction.steps.open_instant", opened)
    monkeypatch.setattr("airflow_provider_slshudi.sls.faults.random.uniform", lambda low, high: 1e9)
    try:
        with pytest.raises(SourceError):
            perform(work, lambda run: None, Act.SKIP, "ada", "why not", None, f"0:{begin + 2}-{begin + 3}")
    finally:
        server.faults = {}
        monkeypatch.undo()
    settle(pipeline.by("run-2"), lambda run: True)
    assert pipeline.work.ledger.coverage("ad_events") == []
    assert pipeline.batch("run-3").rows == 50


def test_a_log_group_that_the_service_does_not_give_is_told_as_lost(
    scenario: Make, server: LocalSls, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(50)
    work = pipeline.by("skip-1")
    begin = work.connect().begin(0)
    monkeypatch.setattr("airflow_provider_slshudi.sls.faults.random.uniform", lambda low, high: 1e9)
    server.faults = {"rules": [{"operations": "pull_logs", "do": "error"}]}
    try:
        said = perform(work, lambda run: None, Act.SKIP, "ada", "why not", None, f"0:{begin + 2}-{begin + 3}")
    finally:
        server.faults = {}
    assert "0 log groups are kept" in said and "the service does not give" in said
    (skipped,) = pipeline.work.ledger.gaps("ad_events", pipeline.work.ledger.now().replace(year=2000))
    (told,) = [event for event in pipeline.work.ledger.events(skipped[0]) if event.what == SKIPPED]
    assert "InternalServerError" in str(json.loads(told.detail)["lost"])


@pytest.mark.parametrize(
    "text", ["", "0", "0:5", "0:5-5", "0:6-5", "a:1-2", "0:1-999999", "0:1-2 3", "-1:1-2", f"0:1-{2**63}"]
)
def test_cursors_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected SHARD:BEGIN-END"):
        parsed(text)
