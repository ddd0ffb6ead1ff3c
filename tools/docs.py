"""Makes the site of the docs in build/docs (`make docs`), or in the folder that the one argument names.

MkDocs builds a folder of Markdown, which this module fills: the pages of docs/, the repository's other documents, the
list of decisions and the reference. So no page depends on the program that makes HTML of it.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path

import docs_reference
from docs_reference import ROOT

from airflow_provider_slshudi import __version__

DOCUMENTS = {
    "index.md": "README.md",
    "index.zh.md": "README.zh-CN.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "changelog.md": "CHANGELOG.md",
}
"""The pages that are documents of the repository's root."""
_LANGUAGES = "[English](README.md) | [中文](README.zh-CN.md)\n"
_BROKEN_CHINESE = re.compile("^(?!#)(.*[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef])\n(?=[\u4e00-\u9fff])", re.MULTILINE)
"""Lines of a sentence that end and go on with Chinese letters: a browser would show their ends as spaces."""
_LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]+)?(?=\))")


def main(folder: Path = ROOT / "build") -> int:
    """Fills `docs-source` in the folder and has MkDocs make `docs` of it; 0 if all links lead somewhere."""
    source, site = folder / "docs-source", folder / "docs"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(ROOT / "docs", source)
    for page, text in _pages().items():
        (source / page).parent.mkdir(exist_ok=True)
        (source / page).write_text(text, encoding="utf-8")
    name = f"airflow-provider-slshudi {__version__}"
    environment = os.environ | {"DOCS_NAME": name, "DOCS_SOURCE": str(source), "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)]
    return subprocess.run(command, cwd=ROOT, env=environment).returncode


def _pages() -> dict[str, str]:
    """All pages with links, by their path in the site's source."""
    files = {path.relative_to(ROOT / "docs").as_posix(): path for path in (ROOT / "docs").rglob("*.md")}
    files |= {page: ROOT / name for page, name in DOCUMENTS.items()}
    texts = {page: _ranked(page) + _led(page, path) for page, path in files.items()}
    return {**texts, "decisions/index.md": _decisions(), **docs_reference.pages()}


def _ranked(page: str) -> str:
    """What puts answers before, and decisions behind, the other pages that search finds."""
    boost = 3 if page.startswith("questions.") else 0.3 if page.startswith("decisions/") else 1
    return "" if boost == 1 else f"---\nsearch: {{boost: {boost}}}\n---\n"


def _led(page: str, path: Path) -> str:
    """The page's text, with links to files of the repository led to their pages."""
    here = path.parent.relative_to(ROOT).as_posix()

    def lead(link: re.Match[str]) -> str:
        place, anchor = _page_of(posixpath.normpath(posixpath.join(here, link["path"])))
        return posixpath.relpath(place, posixpath.dirname(page) or ".") + (link["anchor"] or anchor)

    text = path.read_text(encoding="utf-8").replace(_LANGUAGES, "")
    return _LINK.sub(lead, _BROKEN_CHINESE.sub(r"\1", text))


def _page_of(target: str) -> tuple[str, str]:
    """The page, and its anchor, that shows a file of the repository."""
    pages = {name: page for page, name in DOCUMENTS.items()}
    if target in pages:
        return pages[target].replace(".zh", ""), ""
    if ROOT / target in docs_reference.example_files():
        return "reference/examples.md", "#" + re.sub(r"[^\w\-]", "", target.lower())
    place = target.removeprefix("docs/").replace(".zh.md", ".md")  # the site finds the language
    return ("decisions/index.md" if place == "decisions" else place), ""


def _decisions() -> str:
    lines = ["# Decisions", "What was decided and why, and what else was considered.", ""]
    for path in sorted((ROOT / "docs" / "decisions").glob("0*.md")):
        number, _, title = path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ").partition(" ")
        lines.append(f"- {number} [{title}]({path.name})")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(*(Path(folder).resolve() for folder in sys.argv[1:2])))
