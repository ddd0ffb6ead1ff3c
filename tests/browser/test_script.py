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
WORDS = '{{"begun": "Begun:", "queued": "Queued. {{dag}} is paused:", "asked": "Asked for:"}}'
PAGE = f"""<body data-airflow="" data-words='{WORDS}'>
<main><p>{{said}}</p>
<form class="trigger" data-dag="clicks_tail"><button>run now</button><output></output></form></main>
<script src="/page.js"></script></body>"""

SCRIPT = '<script src="/page.js"></script></body>'


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
    expect(page.locator("output")).to_have_text("Asked for: run-1")


@pytest.mark.parametrize(
    ("status", "answer", "said"),
    [
        (200, {"is_paused": True}, "Queued. clicks_tail is paused: run-1"),
        (200, {"is_paused": False}, "Begun: run-1"),
        (403, {"detail": "Forbidden"}, "Asked for: run-1"),
    ],
)
def test_a_run_is_called_begun_only_where_its_dag_is_not_paused(
    page: Page, status: int, answer: dict[str, object], said: str
) -> None:
    run = json.dumps({"dag_id": "clicks_tail", "dag_run_id": "run-1"})
    page.route("**/dags/clicks_tail/dagRuns", lambda route: route.fulfill(body=run, content_type="application/json"))
    page.route("**/dags/clicks_tail", lambda route: route.fulfill(status=status, json=answer))
    page.get_by_role("button", name="run now").click()
    expect(page.locator("output")).to_have_text(said)


def test_news_are_shown_while_nobody_is_at_work(page: Page) -> None:
    page.route(ADDRESS, lambda route: route.fulfill(body=PAGE.format(said="after"), content_type="text/html"))
    page.evaluate("refresh()")
    expect(page.locator("p")).to_have_text("after")


def test_arrow_keys_go_through_a_calendar_which_is_one_stop_of_the_tab_key(page: Page) -> None:
    def cell(name: str) -> str:
        return f'<td><a href="#{name}">{name}</a></td>' if name else "<td></td>"

    lines = [["", "b", "c", ""], ["d", "", "f", ""], ["g", "h", "i", "j"]]
    body = "".join(f"<tr><th>line{''.join(map(cell, line))}</tr>" for line in lines)
    table = f'<table class="calendar"><thead><tr><th>head</tr></thead><tbody>{body}</tbody></table>'
    page.route(
        ADDRESS, lambda route: route.fulfill(body=f"<body><main>{table}</main>{SCRIPT}", content_type="text/html")
    )
    page.goto(ADDRESS)
    keys = ["Tab", "ArrowDown", "ArrowLeft", "ArrowLeft", "ArrowDown", "ArrowRight", "ArrowUp", "ArrowUp"]
    stops = []
    for key in keys:
        page.keyboard.press(key)
        stops.append(page.evaluate("document.activeElement.textContent"))
    assert stops == ["c", "f", "d", "d", "g", "h", "b", "b"]
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") != "c", "the tab key leaves it"
    assert page.evaluate("[...document.querySelectorAll('.calendar a[tabindex=\"0\"]')].map((a) => a.textContent)") == [
        "b"
    ]


def rows(first: int) -> str:
    cells = "".join(
        f"<tr><td>row {number}<td data-sort={number % 7}>{number % 7} s</tr>" for number in range(first, 40)
    )
    head = "<thead><tr><th>Name<th>Took</tr></thead>"
    return f'<body><main><table data-list="rows">{head}<tbody>{cells}</tbody></table></main>'


def test_a_table_stays_sorted_and_searched_when_news_come(page: Page) -> None:
    page.route(ADDRESS, lambda route: route.fulfill(body=rows(0) + SCRIPT, content_type="text/html"))
    page.goto(ADDRESS)
    shown = page.locator("tbody tr:visible")
    expect(shown).to_have_count(25)
    page.get_by_role("button", name="Took").click()
    expect(shown.first).to_contain_text("0 s")
    page.get_by_role("button", name="Took").click()
    expect(shown.first).to_contain_text("6 s")
    page.get_by_role("searchbox").fill("row 1")
    expect(shown).to_have_count(11)
    page.get_by_role("searchbox").blur()
    page.route(ADDRESS, lambda route: route.fulfill(body=rows(11) + SCRIPT, content_type="text/html"))
    page.evaluate("refresh()")
    expect(shown).to_have_count(9)
    expect(shown.first).to_contain_text("6 s")
