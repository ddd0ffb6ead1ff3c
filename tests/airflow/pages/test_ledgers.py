"""Pages of what several ledgers, or none, and Airflow itself know of pipelines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from airflow_provider_slshudi import cli
from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Kind
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.plugins import access
from airflow_provider_slshudi.plugins.app import create_app
from tests.machine import connection
from tests.seen import committed, registered, saw

HERE, THERE, BOTH = "clicks", "views", "sales"


@pytest.fixture
def ledgers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Ledger]]:
    """Two ledgers by connection: one pipeline is in the first, one in the second, one in both."""
    made, engines = {}, []
    for conn_id, names in {"first": (HERE, BOTH), "second": (THERE, BOTH)}.items():
        file = tmp_path / f"{conn_id}.db"
        engines.append(open_engine(f"sqlite:///{file}"))
        migrate(engines[-1])
        made[conn_id] = Ledger(engines[-1])
        for name in names:
            registered(made[conn_id], name, shards=2)
            saw(made[conn_id], name, unread=300, since=600, shards=2)
            committed(made[conn_id], name, [Range(0, 0, 50)], "run-0")
        described = connection("slshudi_ledger", schema=str(file), extra={"dialect": "sqlite"})
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", described)
    monkeypatch.setenv("AIRFLOW__SLSHUDI__LEDGER_CONN_ID", "first")
    monkeypatch.setenv("AIRFLOW__SLSHUDI__MORE_LEDGERS", "second, first")
    yield made
    for engine in engines:
        engine.dispose()


def pages_of(
    paused: frozenset[str] = frozenset(), broken: frozenset[str] = frozenset(), next_run: datetime | None = None
) -> TestClient:
    """The pages as they are shown to a user who may read all DAGs; some may be paused or broken."""
    dags = {name: [f"{name}_tail", f"{name}_verify"] for name in (HERE, THERE, BOTH)}
    readable = frozenset(dag for of in dags.values() for dag in of)
    app = create_app()
    app.dependency_overrides[access._viewer] = lambda: access.Viewer(
        readable, dags, lambda _: True, paused, broken, frozenset(), lambda _: next_run
    )
    return TestClient(app)


@pytest.fixture
def pages() -> TestClient:
    """The pages where no DAG is paused or broken."""
    return pages_of()


@pytest.mark.parametrize("tasks", [("repair", "verify"), ("repair",)])
def test_only_where_its_operations_can_prove_the_table_a_page_offers_that(
    ledgers: dict[str, Ledger], tasks: tuple[str, ...]
) -> None:
    dag, app = f"{HERE}_operations", create_app()
    tagged = {HERE: [f"{HERE}_tail", dag]}
    app.dependency_overrides[access._viewer] = lambda: access.Viewer(
        frozenset(tagged[HERE]), tagged, lambda _: True, has_task=lambda dag_id, task: dag_id == dag and task in tasks
    )
    page = TestClient(app).get(f"/pipelines/{HERE}").text
    assert (f'data-dag="{dag}"' in page) is ("verify" in tasks)


def test_pages_show_pipelines_of_all_ledgers(ledgers: dict[str, Ledger], pages: TestClient) -> None:
    batch = committed(ledgers["second"], THERE, [Range(0, 50, 60)], "run-1")
    fleet = pages.get("/").text
    assert f"pipelines/{HERE}" in fleet and f"pipelines/{THERE}" in fleet
    assert pages.get(f"/pipelines/{HERE}").status_code == 200
    assert batch.id in pages.get(f"/pipelines/{THERE}").text
    assert pages.get(f"/transactions/{batch.id}").status_code == 200
    assert pages.get(f"/dags/{THERE}_tail").status_code == 200
    assert f'pipeline="{THERE}"' in pages.get("/metrics").text


def test_a_name_that_two_ledgers_have_has_no_page_and_no_figures(
    ledgers: dict[str, Ledger],
    pages: TestClient,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = pages.get(f"/pipelines/{BOTH}")
    assert answer.status_code == 409 and "more_ledgers" in answer.text
    assert f'pipeline="{BOTH}"' not in pages.get("/metrics").text, "Prometheus takes no series twice"
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
    monkeypatch.setenv("AIRFLOW__LOGGING__LOGGING_LEVEL", "WARNING")
    assert cli.main(["metrics"]) == 0
    figures = capsys.readouterr().out
    assert f'pipeline="{HERE}"' in figures and f'pipeline="{BOTH}"' not in figures


def test_a_ledger_that_cannot_be_read_hides_no_other(
    ledgers: dict[str, Ledger], pages: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__SLSHUDI__MORE_LEDGERS", "typo")
    fleet = pages.get("/").text
    assert f"pipelines/{HERE}" in fleet and f"pipelines/{THERE}" not in fleet
    assert "connection typo could not be read" in fleet and "unpause" not in fleet
    answer = pages.get(f"/pipelines/{THERE}")
    assert answer.status_code == 503 and "typo" in answer.text, "not known is not: there is none"
    batch = ledgers["second"].last(THERE, 1)[0]
    for path in (f"/transactions/{batch.id}", f"/dags/{THERE}_tail", f"/dags/{THERE}_tail/runs/run-0"):
        assert pages.get(path).status_code == 503, path


def test_a_file_that_may_not_be_looked_at_hides_no_other_ledger(
    ledgers: dict[str, Ledger], pages: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = connection("slshudi_ledger", schema=f"/{'x' * 300}.db", extra={"dialect": "sqlite"})
    monkeypatch.setenv("AIRFLOW_CONN_LONG", described)
    monkeypatch.setenv("AIRFLOW__SLSHUDI__MORE_LEDGERS", "long")
    fleet = pages.get("/").text
    assert f"pipelines/{HERE}" in fleet and "connection long could not be read" in fleet


def test_a_batch_of_another_ledgers_pipeline_is_answered_as_one_that_is_not_there(ledgers: dict[str, Ledger]) -> None:
    for ledger in ledgers.values():
        registered(ledger, "orders", shards=1)
    theirs = ledgers["first"].begin("orders", Kind.TAIL, [Range(0, 0, 60)], "theirs", "run-1")
    mine = ledgers["second"].begin("orders", Kind.TAIL, [Range(0, 0, 60)], "mine", "run-1")
    app = create_app()
    viewer = access.Viewer(frozenset({"mine"}), {"orders": ["mine"]}, lambda _: True)
    app.dependency_overrides[access._viewer] = lambda: viewer
    pages = TestClient(app)
    assert pages.get(f"/transactions/{mine.id}").status_code == 200
    answers = [pages.get(f"/transactions/{id_}") for id_ in (theirs.id, "unheard-of")]
    assert [answer.status_code for answer in answers] == [403, 403] and answers[0].text == answers[1].text


def test_the_first_error_is_told_where_no_ledger_can_be_read(
    pages: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__SLSHUDI__LEDGER_CONN_ID", "typo")
    answer = pages.get("/")
    assert answer.status_code == 503 and "typo" in answer.text


def test_before_the_first_run_the_pages_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described = connection("slshudi_ledger", schema=str(tmp_path / "none.db"), extra={"dialect": "sqlite"})
    monkeypatch.setenv("AIRFLOW_CONN_NEW", described)
    monkeypatch.setenv("AIRFLOW__SLSHUDI__LEDGER_CONN_ID", "new")
    answer = pages_of(broken=frozenset({f"{THERE}_tail"})).get("/")
    assert answer.status_code == 200 and HERE in answer.text and "unpause its DAG" in answer.text
    assert "cannot be imported" in answer.text, "a pipeline whose file is broken will not run when it is unpaused"
    assert not (tmp_path / "none.db").exists()


def test_a_pipeline_whose_dag_is_paused_or_broken_is_not_called_ok(ledgers: dict[str, Ledger]) -> None:
    assert "</svg>OK<" in pages_of().get(f"/pipelines/{HERE}").text
    assert "</svg>OK<" in pages_of(paused=frozenset({f"{HERE}_verify"})).get(f"/pipelines/{HERE}").text
    paused = pages_of(paused=frozenset({f"{HERE}_tail"}))
    for path in (f"/pipelines/{HERE}", "/"):
        assert "</svg>Paused<" in paused.get(path).text and f"{HERE}_tail is paused" in paused.get(path).text
    broken = pages_of(broken=frozenset({f"{HERE}_tail"})).get("/").text
    assert "</svg>Needs attention<" in broken and f"The file of DAG {HERE}_tail cannot be imported" in broken


def status(page: str) -> str:
    """The status line of a pipeline's page, as text."""
    return re.sub(
        r"\s+", " ", re.sub("<[^>]+>", "", page.partition('<section class="status')[2].partition("</section>")[0])
    )


def test_a_pipelines_page_begins_with_its_state_the_next_run_and_what_to_do(ledgers: dict[str, Ledger]) -> None:
    soon = datetime.now(timezone.utc) + timedelta(minutes=1)
    well = status(pages_of(next_run=soon).get(f"/pipelines/{HERE}").text)
    assert f"Next run: {soon:%Y-%m-%d %H:%M:%S}" in well and "Nothing is to be done." in well and "Run now" in well
    assert "The next run is due" in status(pages_of(next_run=soon - timedelta(days=1)).get(f"/pipelines/{HERE}").text)
    paused = pages_of(paused=frozenset({f"{HERE}_tail"}), next_run=soon).get(f"/pipelines/{HERE}").text
    assert "Next run" not in status(paused) and "What to do: resume it." in status(paused)
    assert 'value="false" class="primary"' in paused
    ledgers["first"].note_trouble(HERE, f"{HERE}_tail", "run-1", "plan", "DataExpired", "lost", waits=False)
    failed = pages_of(next_run=soon).get(f"/pipelines/{HERE}").text
    assert f'class="button primary" href="/pipelines/{HERE}/acts/accept-gap"' in failed


def test_only_a_recoverys_commit_is_called_recommit(ledgers: dict[str, Ledger]) -> None:
    batch = committed(ledgers["first"], HERE, [Range(0, 50, 60)], "run-1")
    seen = {"ledger": "PREPARED", "timeline": "INFLIGHT", "instant": batch.instant, "why": "the data is there"}
    own, other = (f"{HERE}_tail/run-1", f"{HERE}_tail/run-2")
    ledgers["first"].note(batch.id, "decision", {**seen, "decision": "RECOMMIT", "by": own})
    page = pages_of().get(f"/transactions/{batch.id}").text
    assert ">COMMIT<" in page and "RECOMMIT" not in page
    ledgers["first"].note(batch.id, "decision", {**seen, "decision": "RECOMMIT", "by": other})
    assert ">RECOMMIT<" in pages_of().get(f"/transactions/{batch.id}").text
