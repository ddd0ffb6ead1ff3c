"""A pipeline's page in Chromium: what it shows, and its buttons."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import requests
from playwright.sync_api import Locator, Page, sync_playwright

from airflow_provider_slshudi.cli.demo.airflow_process import HOST, LocalAirflow
from airflow_provider_slshudi.handover.names import PREFIX, Act
from airflow_provider_slshudi.views.words import ACTS
from tests.needs import CHROMIUM

_PRESSES = 5


class Window:
    """One page of somebody who is logged in."""

    def __init__(self, page: Page, airflow: LocalAirflow) -> None:
        self.page, self._url = page, f"{airflow.url}{PREFIX}"

    def open(self, path: str, code: int = 200) -> Page:
        """Shows a page of the plugin, which answers with `code`; again while Airflow's own database is locked."""
        for _ in range(_PRESSES):
            answer = self.page.goto(f"{self._url}{path}", wait_until="load")
            if answer is not None and answer.status == code:
                return self.page
        raise AssertionError(f"{path} is not answered with {code}: {self.page.inner_text('body')}")

    def pipeline(self, name: str, code: int = 200) -> Page:
        """Shows a pipeline's page."""
        return self.open(f"/pipelines/{name}", code)

    @property
    def need(self) -> str:
        """What the shown pipeline asks of a person; empty where the page does not say."""
        found = self.page.locator(".status .need")
        return found.inner_text() if found.count() else ""

    def failures(self) -> list[Locator]:
        """The failures that the page shows."""
        return self.page.locator("section.trouble").all()

    def failure(self, error: str) -> Locator | None:
        """The failure of an error, None if the page does not show it."""
        found = (item for item in self.failures() if item.locator("h2").inner_text().startswith(f"{error} at "))
        return next(found, None)

    def press(self, button: str, within: Locator | None = None) -> str:
        """Presses a button that starts a run; returns the run's id, which the page then shows."""
        run = str(self._answered("POST", button, within)["dag_run_id"])
        self.page.locator("output").filter(has_text=run).first.wait_for()
        return run

    def switch(self, button: str) -> None:
        """Presses `pause` or `resume`, and waits until the page says that it is done."""
        self._answered("PATCH", button)
        self.page.get_by_text({"pause": "It is paused.", "resume": "It runs."}[button]).first.wait_for()

    def act(self, act: Act, reason: str, within: Locator | None = None) -> str:
        """Follows the link of an act, gives a reason, and presses its button; returns the run's id."""
        place = within or self.page.locator("main")
        self._open_menus()
        place.get_by_role("link", name=f"{ACTS[act]}…").first.click()
        self.page.get_by_label("Why").fill(reason)
        return self.press(ACTS[act])

    def _open_menus(self) -> None:
        self.page.evaluate("document.querySelectorAll('details.menu').forEach((menu) => { menu.open = true; })")

    def _answered(self, method: str, button: str, within: Locator | None = None) -> dict[str, Any]:
        """Presses a button, and again while Airflow's own database is locked, which the page then says."""
        self._open_menus()
        name = re.compile(f"^{re.escape(button)}$", re.IGNORECASE)
        place = (within or self.page.locator("main")).get_by_role("button", name=name).first
        assert place.count(), f"{self.page.url} has no button {button!r}: {self.page.inner_text('body')}"
        for _ in range(_PRESSES):
            with self.page.expect_response(lambda found: found.request.method == method) as waited:
                place.click()
            if (answer := waited.value).ok:
                found: dict[str, Any] = answer.json()
                return found
            self.page.get_by_text(f"Airflow refused ({answer.status})").first.wait_for()
        raise AssertionError(f"{answer.url}: {answer.status} {answer.text()}")


@contextmanager
def window(airflow: LocalAirflow) -> Iterator[Window]:
    """A browser of this thread; Playwright's objects belong to the thread that made them."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        made = browser.new_context(viewport={"width": 1280, "height": 900})
        made.add_cookies([{"name": "_token", "value": _token(airflow), "domain": HOST, "path": "/"}])
        yield Window(made.new_page(), airflow)
        browser.close()


def _token(airflow: LocalAirflow) -> str:
    with requests.Session() as session:
        session.trust_env = False  # no proxy to loopback
        return str(session.get(f"{airflow.url}/auth/token", timeout=30).json()["access_token"])
