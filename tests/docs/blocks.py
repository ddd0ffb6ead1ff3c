"""Blocks of code of the docs, and the commands that docs name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from tests.machine import ROOT

DOCUMENTS = [*ROOT.glob("README*.md"), ROOT / "SECURITY.md", *sorted(ROOT.glob("docs/**/*.md"))]
_FENCED = re.compile(r"^(?P<indent> *)```(?P<language>\w+)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?<=\n)(?:(?: {4}.*|)\n)* {4}.*(?:\n|$)")
_COMMAND = re.compile(r"`(slshudi\s[^`]*)`")


@dataclass(frozen=True)
class Block:
    """A block of code: the heading above it, its language (empty where the document does not say) and its text."""

    heading: str
    language: str
    text: str


def blocks(document: Path) -> Iterator[Block]:
    """All blocks of a document: fenced ones and, outside of these, indented ones."""
    for section in re.split(r"^#+ ", document.read_text(encoding="utf-8"), flags=re.MULTILINE):
        heading, _, text = section.partition("\n")
        for fenced in _FENCED.finditer(text):
            yield Block(heading, fenced["language"], dedent(fenced["text"]))
        for indented in _INDENTED.finditer(f"\n{_FENCED.sub('', text)}"):
            yield Block(heading, "", dedent(indented[0]).lstrip("\n"))


def commands(document: Path) -> Iterator[str]:
    """All commands `slshudi ...` of a document: within sentences, and lines of blocks, with their continuations."""
    text = document.read_text(encoding="utf-8")
    yield from (re.sub(r"\s+", " ", named[1]) for named in _COMMAND.finditer(_FENCED.sub("", text)))
    for block in blocks(document):
        for line in block.text.replace("\\\n", " ").splitlines():
            if line.removeprefix("$ ").startswith("slshudi "):
                yield line.removeprefix("$ ")
