"""Every page in headless Chromium: `make browser`; with --pictures FOLDER the pictures of the docs: `make screenshots`.

Ends with 1 if a page is slower than two seconds, shows an error of a script, or leaves the window's width.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from airflow_provider_slshudi.cli.demo.airflow_process import HOST
from airflow_provider_slshudi.handover.names import PREFIX
from tests.browser.world import LONG, WIDE, World, exit_code, world
from tests.needs import CHROMIUM

MOST_SECONDS = 2.0
PICTURED = {("all", "light"), ("pipeline", "dark"), ("backfill", "light"), ("abandon", "narrow")}
"""The pages that the docs show, and how."""
LOOKS = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    "narrow": {"color_scheme": "light", "viewport": {"width": 400, "height": 800}},
}


def pages(found: World) -> dict[str, str]:
    """Each page's address, by its name."""
    of_wide = f"/pipelines/{WIDE}"
    paths = {"all": "/", "pipeline": of_wide, "history": f"/pipelines/{LONG}", "backfill": f"{of_wide}/backfill"}
    paths |= {"transaction": f"/transactions/{found.done}", "waiting": f"/transactions/{found.live}"}
    paths |= {"abandon": f"{of_wide}/acts/abandon?transaction={found.live}"}
    return {name: f"{found.airflow.url}{PREFIX}{path}" for name, path in paths.items()}


def context(browser: Browser, found: World, look: str) -> BrowserContext:
    """A window of somebody who is logged in."""
    made = browser.new_context(**LOOKS[look])  # type: ignore[arg-type]  # its parts are of different types
    token = found.airflow.login("admin").cookies["_token"]
    made.add_cookies([{"name": "_token", "value": str(token), "domain": HOST, "path": "/"}])
    return made


def watched(window: BrowserContext, wrong: list[str]) -> Page:
    """A page whose errors are kept."""
    page = window.new_page()
    page.on("pageerror", lambda error: wrong.append(f"{page.url}: {error}"))
    page.on("console", lambda said: wrong.append(f"{page.url}: {said.text}") if said.type == "error" else None)
    return page


def look(browser: Browser, found: World, name: str, pictures: Path | None) -> list[str]:
    """Opens every page in one look; returns what is wrong."""
    wrong: list[str] = []
    window = context(browser, found, name)
    page = watched(window, wrong)
    page.goto(pages(found)["all"])  # the first request makes the application
    for title, address in pages(found).items():
        begin = time.monotonic()
        page.goto(address, wait_until="load")
        seconds = time.monotonic() - begin
        print(f"{name:7} {title:12} {seconds:5.2f} s")
        if seconds > MOST_SECONDS:
            wrong.append(f"{address}: {seconds:.2f} s, allowed are {MOST_SECONDS}")
        if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
            wrong.append(f"{address}: wider than the window in look {name}")
        if pictures is not None and (title, name) in PICTURED:
            page.screenshot(path=pictures / f"page-{title}-{name}.png")
    window.close()
    return wrong


def in_airflow(browser: Browser, found: World, pictures: Path | None) -> list[str]:
    """The frame within Airflow's own pages: menu and tabs, colours, links out of the frame, and a button."""
    wrong: list[str] = []
    window = context(browser, found, "dark")
    page = window.new_page()
    page.goto(f"{found.airflow.url}/plugin/slshudi")
    frame = page.frame_locator("iframe")
    frame.get_by_role("heading", name="Log pipelines").wait_for(timeout=60_000)
    page.goto(f"{found.airflow.url}/dags/{WIDE}_tail/plugin/slshudi-dag")
    frame.get_by_role("heading", name=WIDE).wait_for(timeout=60_000)
    if pictures is not None:
        page.wait_for_timeout(1_500)
        page.screenshot(path=pictures / "page-tab-dark.png")
    button = frame.get_by_role("button", name="run now").first
    button.click()
    begun = frame.get_by_text("Begun:").first
    begun.wait_for(timeout=60_000)
    begun.get_by_role("link").click()
    page.wait_for_url(f"**/dags/{WIDE}_tail/runs/**", timeout=60_000)
    window.close()
    return wrong


def main() -> int:
    """Looks at all."""
    options = argparse.ArgumentParser(prog="python -m tests.browser", description=__doc__)
    options.add_argument("--pictures", type=Path)
    given = options.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="slshudi-browser-") as folder,
        world(Path(folder)) as found,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        wrong = [item for name in LOOKS for item in look(browser, found, name, given.pictures)]
        wrong += in_airflow(browser, found, given.pictures)
        browser.close()
    return exit_code(wrong)


if __name__ == "__main__":
    sys.exit(main())
