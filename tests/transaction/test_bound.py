"""What another process puts in the place of a note in the table's folder is never carried out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_slshudi.exceptions import ManifestError
from airflow_provider_slshudi.handover import fencing, rewrite_plan, verification_report
from airflow_provider_slshudi.handover.findings import Findings, leave_findings, read_findings, take_findings
from airflow_provider_slshudi.handover.rewrite_plan import Written
from airflow_provider_slshudi.handover.verification_report import Question
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.transaction import steps
from airflow_provider_slshudi.transaction.decisions import Decision
from airflow_provider_slshudi.transaction.settle import settle
from tests.scenarios import Scenario
from tests.transaction.checks import assert_exact

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Make = Callable[..., Scenario]
PROPERTY = "slshudi.tests.stranger"
SQL = f"reflect('java.lang.System', 'setProperty', '{PROPERTY}', 'was here') is null"
ANOTHER = "is not the file that was left for this step"


def rewritten(pipeline: Scenario, change: Callable[[dict[str, Any]], None]) -> None:
    """Rewrites every order in the table's folder, as a poller does that may write there."""
    root = Path(pipeline.work.storage.full(fencing.folder("")))
    for path in root.glob("*/batch-*.json"):
        order = json.loads(path.read_text())
        change(order["pipeline"])
        path.write_text(json.dumps(order))


def ask_for_sql(described: dict[str, Any]) -> None:
    described["checks"] = [{"name": "stranger", "batch": SQL, "every": None, "freshness": None, "on_failure": "warn"}]


def test_sql_of_a_rewritten_order_does_not_run_and_the_next_run_reads_the_batch_again(
    scenario: Make, spark: SparkSession
) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(20)
    work = pipeline.by("run-1")
    opened = pipeline.open(work)
    rewritten(pipeline, ask_for_sql)
    java = spark._jvm
    assert java is not None
    java.System.clearProperty(PROPERTY)
    with pytest.raises(ManifestError, match=ANOTHER):
        steps.append(work, opened.id, opened.token)
    assert java.System.getProperty(PROPERTY) is None
    settled = settle(pipeline.by("run-2"), lambda run: True)
    assert [item.decision for item in settled] == [Decision.ROLL_BACK_AND_ABORT]
    assert_exact(pipeline, 20)


def test_an_order_that_is_rewritten_after_the_append_leads_no_commit_elsewhere(scenario: Make, tmp_path: Path) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(20)
    prepared = pipeline.prepare(pipeline.by("run-1"))
    elsewhere = tmp_path / "elsewhere"

    def lead(described: dict[str, Any]) -> None:
        described["table"]["path"] = f"file://{elsewhere}"

    rewritten(pipeline, lead)
    with pytest.raises(ManifestError, match=ANOTHER):
        steps.commit(pipeline.by("run-1"), prepared.id, prepared.token)
    assert pipeline.work.ledger.get(prepared.id).state is State.PREPARED
    assert not elsewhere.exists()


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    (tmp_path / "table").mkdir()
    return Storage(f"file://{tmp_path / 'table'}")


def test_a_verification_answers_no_other_question(storage: Storage) -> None:
    asked = Question("20260101000000000", [(0, 0, 10, "20260101000000000")])
    digest = verification_report.ask(storage, "v", asked)
    assert list(map(tuple, verification_report.question(storage, "v", digest).ranges)) == asked.ranges
    verification_report.ask(storage, "v", Question("2026", [], quarantine="file:///another"))
    with pytest.raises(ManifestError, match=ANOTHER):
        verification_report.question(storage, "v", digest)


def test_a_mending_mends_no_other_findings(storage: Storage) -> None:
    leave_findings(storage, "m", Findings(foreign=("expr_index_a",)))
    taken = take_findings(storage, "m")
    assert taken is not None and taken[0].foreign == ("expr_index_a",)
    assert read_findings(storage, "m", taken[1]) == taken[0]
    leave_findings(storage, "m", Findings(foreign=("expr_index_b",)))
    with pytest.raises(ManifestError, match=ANOTHER):
        read_findings(storage, "m", taken[1])


def test_a_clustering_completes_with_no_other_manifest(storage: Storage) -> None:
    rewrite_plan.write_manifest(storage, "20260101000000000", Written("{}", 1, 1, ["a"], 1))
    _, digest = rewrite_plan.take_manifest(storage, "20260101000000000")
    assert rewrite_plan.read_manifest(storage, "20260101000000000", digest).paths == ["a"]
    rewrite_plan.write_manifest(storage, "20260101000000000", Written("{}", 1, 1, ["b"], 1))
    with pytest.raises(ManifestError, match=ANOTHER):
        rewrite_plan.read_manifest(storage, "20260101000000000", digest)
