"""What tests read in the manual."""

from __future__ import annotations

import re

from tests.machine import ROOT


def error_rows() -> list[tuple[str, ...]]:
    """The errors of each row of the table of errors."""
    text = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    table = text.partition("| error | what it means | what to do |")[2].partition("\n\n")[0]
    return [tuple(names.split(", ")) for names in re.findall(r"^\| ([A-Z][A-Za-z, ]+) \|", table, re.MULTILINE)]
