"""The pages' script in Chromium, without an Airflow."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, Route, expect, sync_playwright

from airflow_provider_slshudi.plugins.render import STATIC
from tests.needs import CHROMIUM, needs_chromium

pytestmark = needs_chromium
ADDRESS = "http://pages.test/pipelines/clicks"
PAGE = """<body data-airflow=""><main><p>{said}</p>
<form class="trigger" data-dag="clicks_tail"><button>run now</button><output></output></form></main>
<script src="/page.js"></script></body>"""


@pytest.fixture
def page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.route("**/page.js", lambda route: route.fulfill(path=STATIC["page.js"], content_type="text/javascript"))
        page.route(ADDRESS, lambda route: route.fulfill(body=PAGE.format(said="before"), content_type="text/html"))
        page.goto(ADDRESS)
        yield page
        browser.close()


def test_a_button_that_is_pressed_while_news_come_shows_its_answer(page: Page) -> None:
    news: list[Route] = []
    asked: list[Route] = []
    page.route(ADDRESS, lambda route: news.append(route))
    page.route("**/dagRuns", lambda route: asked.append(route))
    with page.expect_request(ADDRESS):
        page.evaluate("void refresh()")
    with page.expect_request("**/dagRuns"):
        page.get_by_role("button", name="run now").click()
    with page.expect_event("requestfinished"):
        news[0].fulfill(body=PAGE.format(said="after"), content_type="text/html")
    page.wait_for_timeout(200)
    asked[0].fulfill(body=json.dumps({"dag_id": "clicks_tail", "dag_run_id": "run-1"}), content_type="application/json")
    expect(page.locator("output")).to_have_text("Begun: run-1")


def test_a_run_of_a_paused_dag_is_not_called_begun(page: Page) -> None:
    run = json.dumps({"dag_id": "clicks_tail", "dag_run_id": "run-1"})
    page.route("**/dags/clicks_tail/dagRuns", lambda route: route.fulfill(body=run, content_type="application/json"))
    page.route("**/dags/clicks_tail", lambda route: route.fulfill(json={"is_paused": True}))
    page.get_by_role("button", name="run now").click()
    expect(page.locator("output")).to_have_text(
        "Queued. The DAG clicks_tail is paused: unpause it, and the run begins: run-1"
    )


def test_news_are_shown_while_nobody_is_at_work(page: Page) -> None:
    page.route(ADDRESS, lambda route: route.fulfill(body=PAGE.format(said="after"), content_type="text/html"))
    page.evaluate("refresh()")
    expect(page.locator("p")).to_have_text("after")
