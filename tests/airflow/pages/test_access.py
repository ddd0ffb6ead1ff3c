"""Who may see what: each route, with and without a login, of one's own pipeline and of another's."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
import requests
from fastapi.routing import APIRoute

from airflow_provider_slshudi.handover.names import PREFIX, Act
from airflow_provider_slshudi.plugins.app import create_app
from tests.airflow.pages.conftest import FOREIGN, MINE, THEIRS, World

pytestmark = pytest.mark.long
ROUTES = [route for route in create_app().routes]
_SHARED = ("/", "/metrics", "/static/{name}")
"""Routes that name no pipeline."""


def addresses(world: World, pipeline: str) -> Iterator[str]:
    """The address of every route, for a pipeline."""
    transaction = world.mine if pipeline == MINE else world.theirs
    for route in ROUTES:
        assert isinstance(route, APIRoute), f"{route} is no route that asks who looks"
        assert route.methods == {"GET"}, "pages write nothing"
        values = {"name": pipeline, "id_": transaction.id, "dag_id": f"{pipeline}_tail", "run_id": transaction.run_id}
        values |= {"act": "recover"}
        values |= {"name": "page.css"} if route.path == "/static/{name}" else {}
        path = route.path.replace(":path", "").format(**{key: quote(value, safe="") for key, value in values.items()})
        yield f"{world.airflow.url}{PREFIX}{path}"


def test_no_route_answers_without_a_login(world: World) -> None:
    for address in addresses(world, MINE):
        answer = requests.get(address, timeout=30)
        assert answer.status_code == 401, address
        assert MINE not in answer.text and "<html" not in answer.text, "Airflow's own page answers 200 where nothing is"


def test_another_users_cookie_is_not_taken_for_a_login(world: World) -> None:
    for address in addresses(world, MINE):
        assert requests.get(address, timeout=30, cookies={"_token": "forged"}).status_code in (401, 403), address


def test_every_route_shows_ones_own_pipeline(world: World) -> None:
    reader = world.airflow.login("reader")
    for address in addresses(world, MINE):
        answer = reader.get(address, timeout=30)
        assert answer.status_code == 200, (address, answer.text)
        said = MINE if address.endswith("/metrics") else f"{PREFIX}/static/page.css"
        assert said in answer.text or "/static/" in address


def test_no_route_shows_a_pipeline_whose_dags_one_may_not_read(world: World) -> None:
    reader = world.airflow.login("reader")
    shared = tuple(f"{PREFIX}{path}".replace("{name}", "page.css") for path in _SHARED)
    for address in addresses(world, THEIRS):
        answer = reader.get(address, timeout=30)
        if not address.endswith(shared):
            assert answer.status_code == 403, (address, answer.text)
        assert THEIRS not in answer.text, address


def test_what_is_not_there_is_answered_as_what_one_may_not_see(world: World) -> None:
    reader = world.airflow.login("reader")

    def answered(path: str) -> tuple[int, str]:
        answer = reader.get(f"{world.airflow.url}{PREFIX}{path}", timeout=30)
        return answer.status_code, answer.text

    assert answered(f"/pipelines/{THEIRS}") == answered("/pipelines/unheard-of")
    assert answered(f"/transactions/{world.theirs.id}") == answered("/transactions/unheard-of")
    assert answered(f"/dags/{THEIRS}_tail") == answered("/dags/unheard-of")


def test_an_administrator_sees_all(world: World) -> None:
    admin = world.airflow.login("admin")
    shown = admin.get(f"{world.airflow.url}{PREFIX}/", timeout=30).text
    assert MINE in shown and THEIRS in shown


def test_a_user_who_may_repair_may_not_do_what_may_lose_data(world: World) -> None:
    operator, admin = world.airflow.login("operator"), world.airflow.login("admin")

    def ask(session: requests.Session, role: str, act: Act) -> int:
        run = {"logical_date": None, "conf": {"act": act.value, "reason": "to see"}}
        return session.post(f"{world.airflow.url}/api/v2/dags/{MINE}_{role}/dagRuns", json=run, timeout=30).status_code

    assert ask(operator, "repair", Act.RECOVER) == 200
    for act in Act:
        if act.may_lose:
            assert ask(operator, "override", act) == 403
            assert ask(operator, "repair", act) == 400, f"the DAG of the harmless acts took {act.value}"
            assert ask(admin, "override", act) == 200
        page = operator.get(f"{world.airflow.url}{PREFIX}/pipelines/{MINE}/acts/{act.value}", timeout=30).text
        assert f"{MINE}_{act.role}" in page or act.needs_transaction


def test_a_tag_of_another_pipeline_opens_no_page_of_it(world: World) -> None:
    reader = world.airflow.login("reader")
    tab = reader.get(f"{world.airflow.url}{PREFIX}/dags/{FOREIGN}", timeout=30)
    assert tab.status_code == 200 and "not part of a log pipeline" in tab.text
    for path in (f"/pipelines/{THEIRS}", f"/transactions/{world.theirs.id}", f"/pipelines/{THEIRS}/backfill"):
        assert reader.get(f"{world.airflow.url}{PREFIX}{path}", timeout=30).status_code == 403, path
    for path in ("/", "/metrics", f"/dags/{FOREIGN}", f"/dags/{FOREIGN}/runs/run-1"):
        assert THEIRS not in reader.get(f"{world.airflow.url}{PREFIX}{path}", timeout=30).text, path


def test_values_of_logs_are_for_those_who_may_read_the_logs_of_the_dags_tasks(world: World) -> None:
    value = "&lt;script&gt;a value of a log"
    world.ledger.save_new_keys(
        MINE, world.mine.id, 9, {"of_values": 9}, {"of_values": ["<script>a value of a log"]}, frozenset()
    )
    shown = {name: world.airflow.login(name) for name in ("reader", "onlooker")}
    pages = {name: of.get(f"{world.airflow.url}{PREFIX}/pipelines/{MINE}", timeout=30) for name, of in shown.items()}
    assert all(answer.status_code == 200 and "of_values" in answer.text for answer in pages.values())
    assert value in pages["reader"].text
    assert value not in pages["onlooker"].text and "read the task logs" in pages["onlooker"].text
