"""Documents: each link within the project leads to a file and a heading that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.machine import ROOT

DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("native/*.md"), *ROOT.glob("monitoring/*.md")]
_LINK = re.compile(r"\]\((?!https?:|mailto:)(?P<file>[^)#\s]*)(?:#(?P<heading>[^)\s]+))?\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_ANCHOR = re.compile(r'<a id="([^"]+)"></a>')
_CODE = re.compile(r"^ {4}.*$|`[^`\n]*`", re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_link_leads_to_a_file_and_a_heading(document: Path) -> None:
    broken = []
    for link in _LINK.finditer(_CODE.sub("", document.read_text())):
        target = (document.parent / link["file"]) if link["file"] else document
        if not target.exists() or (link["heading"] and link["heading"] not in anchors(target)):
            broken.append(link[0])
    assert not broken


def test_who_finds_a_hole_learns_where_to_tell_it_and_what_is_protected() -> None:
    headings = _HEADING.findall((ROOT / "SECURITY.md").read_text())
    assert {"Telling a vulnerability", "What is protected", "What is not"} <= set(headings)


def anchors(document: Path) -> set[str]:
    """The headings of a document as links name them (docs.github.com, "Section links"), and its anchors."""
    text = document.read_text()
    headings = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(text))
    return {*_ANCHOR.findall(text), *(heading.strip().replace(" ", "-") for heading in headings)}
