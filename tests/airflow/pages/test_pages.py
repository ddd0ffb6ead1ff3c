"""What the pages show, and what they never let through."""

from __future__ import annotations

import subprocess
import sys
from urllib.parse import quote

import pytest
from markupsafe import escape

from airflow_provider_slshudi.handover.names import BACKFILL, PREFIX
from tests.airflow.pages.conftest import HOSTILE, HOUR, MINE, THEIRS, World

pytestmark = pytest.mark.long


def shown(world: World, path: str, code: int = 200) -> str:
    answer = world.airflow.login("admin").get(f"{world.airflow.url}{PREFIX}{path}", timeout=30)
    assert answer.status_code == code, answer.text
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    return answer.text


@pytest.mark.parametrize(
    "path",
    [
        "/pipelines/{pipeline}",
        "/pipelines/{pipeline}/backfill",
        "/transactions/{id}",
        "/dags/{pipeline}_tail/runs/{run}",
    ],
)
def test_hostile_strings_are_text(world: World, path: str) -> None:
    run = quote(world.mine.run_id, safe="")
    page = shown(world, path.format(pipeline=MINE, id=world.mine.id, run=run))
    assert "<script>alert" not in page
    assert str(escape(HOSTILE)) in page


def test_a_run_is_found_by_its_whole_id(world: World) -> None:
    page = shown(world, f"/dags/{MINE}_tail/runs/{quote(world.mine.run_id, safe='')}")
    assert f"<title>{world.mine.id}</title>" in page


def test_a_run_without_a_transaction_shows_its_pipeline(world: World) -> None:
    page = shown(world, f"/dags/{MINE}_tail/runs/manual__2026-01-31T00:00:00+00:00")
    assert "made no batch" in page and f"<title>{MINE}</title>" in page


@pytest.mark.parametrize("path", ["/dags/all_clicks", "/dags/all_clicks/runs/run-1"])
def test_a_fleets_dag_shows_its_pipelines(world: World, path: str) -> None:
    page = shown(world, path)
    assert f"pipelines/{MINE}" in page and f"pipelines/{THEIRS}" in page


def test_a_dag_of_nobodys_pipeline_says_so(world: World) -> None:
    assert "is not part of a log pipeline" in shown(world, "/dags/mine_other")


def test_one_pipeline_shows_shards_batches_and_failures(world: World) -> None:
    page = shown(world, f"/pipelines/{MINE}")
    for said in ("DataExpired at plan", world.mine.id, "price", "Append and record", 'class="missing"', "Committed To"):
        assert said in page


def test_a_failure_that_a_connection_may_mend_links_airflows_connections(world: World) -> None:
    world.ledger.note_trouble(THEIRS, f"{THEIRS}_tail", "run-2", "open", "SourceRefused", "wrong key", waits=False)
    sections = {
        name: shown(world, f"/pipelines/{name}").partition(f"{error} at")[2].partition("</section>")[0]
        for name, error in ((THEIRS, "SourceRefused"), (MINE, "DataExpired"))
    }
    assert 'href="/connections"' in sections[THEIRS]
    assert "/connections" not in sections[MINE]


def test_a_pipeline_whose_dags_name_no_notifier_says_that_nobody_is_told(world: World) -> None:
    assert f"Airflow tells no person of failures: no running DAG of {MINE}" in shown(world, f"/pipelines/{MINE}")
    code = f"from airflow_provider_slshudi.hooks.alerts import alerts; print(alerts()[{MINE!r}])"
    environment = world.airflow.environment
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    assert told.stdout.endswith("False\n")


def test_a_batch_shows_the_ledger_beside_the_timeline_and_what_it_cost(world: World) -> None:
    page = shown(world, f"/transactions/{world.mine.id}")
    for said in ("Ledger and timeline agree.", f"{MINE}_tail/run-2", "Not compared", "Append&#39;s tasks", "Requests"):
        assert said in page
    assert str(world.mine.instant) in page and str(world.mine.completed) in page
    assert "too little to say what a GB costs" in shown(world, f"/pipelines/{MINE}")


def test_backfills_show_how_far_they_are_and_that_they_are_paused(world: World) -> None:
    page = shown(world, f"/pipelines/{MINE}/backfill")
    assert "0%: 0 of 100 log groups, about 0 B of 100 kB raw, 0 of 1,000 rows" in page.replace("\u00a0", " ")
    assert "It is paused: what is asked for here waits" in page and "No batch of it is under way" in page
    asked = f"{MINE!r}, '{MINE}_backfill', 'run-1'"
    code = f"from airflow_provider_slshudi.cli.backfill import _queued; print(_queued({asked}))"
    environment = world.airflow.environment
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    assert f"the DAG is paused: it begins after `airflow dags unpause {MINE}_backfill`" in told.stdout


def test_where_one_dag_does_all_that_people_ask_for_its_runs_say_what(world: World) -> None:
    form, act = f'<form class="trigger" data-dag="{THEIRS}_operations">', '<input type="hidden" name="act" value="{}">'
    for path, asked in (("", "verify"), ("/backfill", "backfill"), ("/acts/recover", "recover")):
        page = shown(world, f"/pipelines/{THEIRS}{path}")
        assert page.count(form) >= 1 and page.count(act.format(asked)) == page.count(form), path
    page = shown(world, f"/pipelines/{MINE}/backfill")
    assert f'data-dag="{MINE}_backfill"' in page and 'name="act"' not in page, "its own DAG has no such param"
    assert f"{THEIRS}_override" in shown(world, f"/pipelines/{THEIRS}/acts/abandon"), "what may lose data has its own"
    code = f"from airflow_provider_slshudi.cli.backfill import _dag_of; print(_dag_of({MINE!r}), _dag_of({THEIRS!r}))"
    told = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=world.airflow.environment
    )
    assert told.stdout.split()[-2:] == [f"{MINE}_backfill", f"{THEIRS}_operations"]


def test_a_backfill_that_failed_says_why_and_what_to_do(world: World) -> None:
    run = f"{MINE}_backfill/typed"
    world.ledger.ask(MINE, BACKFILL, "ada", "everything True", run, {})
    world.ledger.answer(MINE, BACKFILL, run, f"ConfigError: {HOSTILE}")
    page = shown(world, f"/pipelines/{MINE}")
    section = page.partition("The last backfill failed")[2].partition("</section>")[0]
    assert str(escape(HOSTILE)) in section and "What to do:" in section and "asked for by ada" in section
    assert str(escape(HOSTILE)) in shown(world, f"/pipelines/{MINE}/backfill").partition("Failed Requests")[2]


@pytest.mark.parametrize(
    ("act", "said"),
    [("table-is-gone", "into a new table"), ("rebuild-ledger", "If the table lacks it"), ("recover", "It stays.")],
)
def test_an_act_says_what_becomes_of_the_last_commit(world: World, act: str, said: str) -> None:
    page = shown(world, f"/pipelines/{MINE}/acts/{act}")
    assert said in page.partition("The last commit is")[2].partition("</p>")[0]


def test_keys_that_no_column_names_are_shown_with_how_often(world: World) -> None:
    page = shown(world, f"/pipelines/{MINE}")
    section = page.partition("Unmapped Keys")[2].partition("Manual Actions")[0]
    assert section.count(str(escape(HOSTILE))) == 2, "the key, and its example"
    for said in ("<td>Dropped</td><td>37</td><td>512</td>", f"/transactions/{world.mine.id}", "rest_column"):
        assert said in section
    assert "Batches have seen none" in shown(world, f"/pipelines/{THEIRS}")


def test_partitions_are_shown_where_a_run_looked_for_their_completeness(world: World) -> None:
    page = shown(world, f"/pipelines/{MINE}?partition={HOUR}&lines=31&until={2**80}")
    assert f'aria-label="{HOUR}: complete, 7 rows, complete ' in page
    section = page.partition(f"<h3>Partition {HOUR}</h3>")[2].partition("</section>")[0]
    assert f"/transactions/{world.mine.id}" in section and "Became Complete" in section
    assert "<h3>" not in shown(world, f"/pipelines/{MINE}?partition={quote(HOSTILE)}&until=-{2**80}")
    assert 'id="partitions"' not in shown(world, f"/pipelines/{THEIRS}"), "its file declares no lateness"


def test_consumers_are_shown_with_the_run_that_took_what_they_have_not_confirmed(world: World) -> None:
    section = shown(world, f"/pipelines/{MINE}").partition("<h2>Consumers</h2>")[2].partition("</table>")[0]
    ours, theirs = section.split("</tr>")[1:3]
    assert str(escape(HOSTILE)) in ours and f'href="/dags/{MINE}_hourly/runs/run-1"' in ours
    assert f"{MINE}_hourly / run-1" in theirs and "href" not in theirs, "another Airflow has that run"
    assert "Consumers" not in shown(world, f"/pipelines/{THEIRS}")


def test_a_batch_shows_its_place_and_the_partitions_that_it_wrote_to(world: World) -> None:
    page = shown(world, f"/transactions/{world.mine.id}")
    assert "<dt>Place</dt><dd>1<" in page
    assert f'<th scope="row">event_date={HOUR}</th><td data-sort="7">7</td>' in page
    assert f"event_date={escape(HOSTILE)}" in page


def test_a_ledger_that_does_not_answer_is_said_plainly(world: World) -> None:
    away = world.ledger_file.with_suffix(".away")
    world.ledger_file.rename(away)
    world.ledger_file.mkdir()
    try:
        page = shown(world, "/", code=503)
    finally:
        world.ledger_file.rmdir()
        away.rename(world.ledger_file)
    assert "The ledger could not be read" in page and "asks again" in page
    assert MINE in shown(world, "/"), "the next request finds it again"


def test_airflow_shows_the_pages_and_tabs(world: World) -> None:
    admin = world.airflow.login("admin")
    (plugin,) = [
        plugin
        for plugin in admin.get(f"{world.airflow.url}/api/v2/plugins", timeout=30).json()["plugins"]
        if plugin["name"] == "slshudi"
    ]
    assert {view["destination"] for view in plugin["external_views"]} == {
        *("nav", "dag", "dag_run", "task", "task_instance")
    }
