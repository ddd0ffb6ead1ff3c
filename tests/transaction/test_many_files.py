"""A commit's time follows from its files, and a batch with more than one commit takes is refused while it may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from aliyun.log import LogItem, PutLogsRequest

from airflow_provider_slshudi.config.pipeline import MOST_FILES
from airflow_provider_slshudi.exceptions import LeaseHeld, TooManyFiles
from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.spark.driver import append
from airflow_provider_slshudi.system.processes import clock
from airflow_provider_slshudi.transaction import context, record, steps
from airflow_provider_slshudi.transaction.decisions import Decision
from airflow_provider_slshudi.transaction.settle import register, settle
from tests.scenarios import Scenario
from tests.transaction.quarantined import rows_of

Make = Callable[..., Scenario]


class Untils:
    """A launcher that only remembers when a job was to be over."""

    until = 0.0

    def run(self, verb: Verb, order: JobOrder, secrets: Mapping[str, str]) -> None:
        self.until = order.until


def test_a_driver_has_more_time_for_more_files_and_the_lease_outlasts_it(scenario: Make) -> None:
    pipeline = scenario(shards=1)
    register(pipeline.work)
    launcher = Untils()
    working = replace(pipeline.work, launcher=launcher)
    with working.lease() as lease:
        for files, seconds in ((0, 180), (1_000, 380), (MOST_FILES, 2_180), (10**7, 3600), (0, 180)):
            working.change(lease, Verb.COMMIT, working.order(), files)
            assert launcher.until - clock() == pytest.approx(seconds, abs=2)
            ends = (lease.expires - datetime.now(timezone.utc)).total_seconds()
            assert ends >= seconds + 14
            # Nobody takes a long lease for one of a clock that was wrong.
            with pytest.raises(LeaseHeld), working.ledger.lease("ad_events", "another"):
                pass


def test_dates_beyond_what_one_commit_takes_cost_no_row_and_no_time(
    scenario: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three dates, ten rows of the first, in one batch that may have two files."""
    pipeline = scenario(shards=1)
    source = pipeline.work.pipeline.source
    days = [0] * 10 + [1, 365 * 500]
    items = [
        LogItem(1_700_000_000, contents=[("event_id", str(at)), ("ts", str((1_767_225_600 + day * 86_400) * 1_000))])
        for at, day in enumerate(days)
    ]
    pipeline.client.put_logs(PutLogsRequest(source.project, source.logstore, "ads", "10.0.0.1", items))
    for module in (append, record):
        monkeypatch.setattr(module, "MOST_FILES", 2)
    batch = pipeline.batch("run-1")
    assert batch.state is State.COMMITTED and dict(batch.manifest or {})["misfits"] == {"event_time": 2}
    rows = rows_of(pipeline.work.pipeline.table.path)
    assert sorted(int(row["event_id"]) for row in rows) == list(range(12))
    assert {row["event_date"] for row in rows} == {"2026-01-01", None}
    assert all(row["event_time"] is not None for row in rows)


def test_a_batch_of_more_files_than_a_commit_takes_is_refused_by_its_column_and_rolled_back(
    scenario: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = {"path": f"file://{tmp_path}/t", "name": "ad_events", "partition": {"by": "field", "column": "event_id"}}
    pipeline = scenario(shards=1, table=table)
    pipeline.put(3)
    monkeypatch.setattr(record, "MOST_FILES", 2)
    with pytest.raises(
        TooManyFiles, match=r"has 3 files .* takes at most 2.* partition column event_id .*batch.max_bytes"
    ):
        pipeline.prepare(pipeline.by("run-1"))
    assert [item.decision for item in settle(pipeline.by("run-2"), lambda run: True)] == [Decision.ROLL_BACK_AND_ABORT]

    monkeypatch.setattr(record, "MOST_FILES", MOST_FILES)
    prepared = pipeline.prepare(pipeline.by("run-3"))
    given: list[int] = []

    def seconds(files: int) -> float:
        given.append(files)
        return 180.0

    monkeypatch.setattr(context, "commit_seconds", seconds)
    assert steps.commit(pipeline.by("run-3"), prepared.id, prepared.token).state is State.COMMITTED
    assert given == [3]
