"""The built site: every link leads somewhere, search finds words of both languages, nothing comes from elsewhere."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from tests.machine import ROOT
from tests.needs import CHROMIUM, needs_chromium

pytestmark = pytest.mark.long
PAGES = ["index.html", "questions.html", "operating.html", "reference/commands.html", "reference/dags.html"]
_PARTS = ("li", "table", "pre", "h2", "h3", "img")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the site and its source; MkDocs is strict about links, anchors and pages that no menu names."""
    folder = tmp_path_factory.mktemp("site")
    made = subprocess.run([sys.executable, ROOT / "tools" / "docs.py", folder], capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    return folder


@pytest.fixture(scope="module")
def address(built: Path) -> Iterator[str]:
    """The site, served as a person would serve it."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=built / "docs")) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright_api = pytest.importorskip("playwright.sync_api")
    with playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


_SHOWS = """address => [...document.querySelectorAll(".md-search-result__link")]
    .some(link => link.href.startsWith(address))"""


def parts(html: str) -> dict[str, int]:
    """How many lists' items, tables, blocks of code, headings and pictures there are."""
    return {part: len(re.findall(rf"<{part}[ >]", html)) for part in _PARTS}


def test_pages_have_the_parts_that_their_markdown_has(built: Path) -> None:
    """GitHub follows CommonMark, and the site's Markdown begins no list right below a sentence."""
    markdown, lost = MarkdownIt("commonmark").enable("table"), []
    for source in sorted((built / "docs-source").rglob("*.md")):
        name = source.relative_to(built / "docs-source").as_posix()
        if not name.startswith("reference/"):
            page = f"zh/{name[:-6]}.html" if name.endswith(".zh.md") else f"{name[:-3]}.html"
            html = (built / "docs" / page).read_text(encoding="utf-8")
            article = html.partition("<article")[2].partition("</article>")[0]
            text = re.sub(r"^---\n.*?\n---\n", "", source.read_text(encoding="utf-8"), flags=re.DOTALL)
            if parts(markdown.render(text)) != parts(article):
                lost.append(name)
    assert not lost


def test_no_page_names_the_machine_that_made_it(built: Path) -> None:
    named = [str(ROOT), str(built), str(Path.home()), sys.prefix, socket.gethostname()]
    wrong = re.compile("|".join(re.escape(name) for name in named if len(name) > 5))
    pages = [path for path in (built / "docs").rglob("*") if path.suffix in (".html", ".json", ".xml", ".inv")]
    assert len(pages) > 100
    assert not [path for path in pages if wrong.search(path.read_bytes().decode(errors="replace"))]


@needs_chromium
@pytest.mark.parametrize("start", ["index.html", "zh/index.html"])
@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("backfill", "pages.html"),
        ("回填", "zh/questions.html"),
        ("max_misfits", "reference/fields.html"),
        ("RangesDoubled", "reference/errors.html"),
        ("slshudi_unread_bytes", "reference/metrics.html"),
        ("游标", "zh/"),
    ],
)
def test_search_finds_words_of_both_languages(browser: Any, address: str, start: str, word: str, found: str) -> None:
    page = browser.new_page()
    page.goto(f"{address}/{start}")
    page.fill(".md-search__input", word)
    # Results come one by one.
    page.wait_for_function(_SHOWS, arg=f"{address}/{found}")
    page.close()


@needs_chromium
def test_pages_fetch_nothing_from_elsewhere_and_fail_at_nothing(browser: Any, address: str) -> None:
    asked, failed = set[str](), list[str]()

    def fail(response: Any) -> None:
        # The theme looks for a site's map beside each language's pages, and does without one.
        if response.status >= 400 and not response.url.endswith("/sitemap.xml"):
            failed.append(response.url)

    page = browser.new_page()
    page.on("request", lambda request: asked.add(request.url))
    page.on("response", fail)
    page.on("pageerror", lambda error: failed.append(str(error)))
    for name in [*PAGES, *(f"zh/{name}" for name in PAGES)]:
        page.goto(f"{address}/{name}")
        page.wait_for_load_state("networkidle")
        assert page.title().endswith("airflow-provider-slshudi 0.1.0")
    page.close()
    assert not failed and {url for url in asked if not url.startswith(address)} == set()
