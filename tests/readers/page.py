"""The matrix of cells: as Markdown for docs/engines.md, which this module writes, and as counts for the last line."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.machine import ROOT
from tests.readers.cells import NOT_RUN, REFUSED, RIGHT, WRONG, Cell
from tests.readers.chinese import in_chinese
from tests.readers.faults import fault_of
from tests.readers.hostile import Outcome
from tests.readers.readers import READERS, Reader
from tests.readers.tables import DELTA, HUDI, ICEBERG, KINDS
from tests.readers.unrun import UNRUN

PAGE = ROOT / "docs" / "engines.md"
COMMAND = "make readers"
_MIRRORS = (("Iceberg mirrors", ICEBERG), ("Delta mirrors", DELTA))
_PATH = re.compile(r"(?:file:|s3a?:)?/+(?:[\w.=%+ -]+/)+[^\s,;)'`]*")
_TIME = re.compile(r"\d{17}|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_LONGEST, _WIDTH = 160, 120
_INTRODUCTION = f"""# Which engines read the tables
`{COMMAND}` makes this page. It has the package write a table of each kind, with every type of column, NULL, emoji and
days before 1582, and mirrors it. Then it asks each reader for the number of rows, for every value of every row, and for
one filter on each scalar type and one on the partition, and compares the answers with the rows that were written.

- `right`: all answers are those of the rows.
- `refused`: the reader stopped with an error, at the table or at some of the queries.
- `wrong`: an answer differs and the reader reported no error. Each is a fault of the reader itself, named below.
- `{NOT_RUN}`: the reader could not be fetched or started where this page was made.

A number leads to the reader's words, or to the fault. [Versions](pipeline.md#versions-of-hudis-tables) and
[mirrors](pipeline.md#mirror) are settings of a pipeline.
"""


class Notes:
    """The numbered sentences under the matrix; the same sentence has one number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, sentence: str) -> int:
        """The number of a sentence."""
        return self._numbers.setdefault(sentence, len(self._numbers) + 1)

    def lines(self) -> list[str]:
        """The sentences as a numbered list."""
        return [f"{number}. {sentence}" for sentence, number in self._numbers.items()]


def sections(versions: Sequence[int]) -> list[tuple[str, str]]:
    """The headings of the page's tables, each with the form that it is about: Hudi's by version, then the mirrors."""
    return [*((f"Hudi tables of version {version}", HUDI) for version in versions), *_MIRRORS]


def matrix(cells: Sequence[Cell], readers: Sequence[Reader], versions: Sequence[int], notes: Notes) -> str:
    """The tables of the page, with a line for each of these readers."""
    parts = []
    for title, form in sections(versions):
        mine = [cell for cell in cells if cell.table.form == form]
        if form == HUDI:
            mine = [cell for cell in mine if title.endswith(f" {cell.table.version}")]
        able = [reader for reader in readers if form in reader.forms]
        parts.append(f"## {title}\n{_table(mine, able, notes)}")
    return "\n\n".join(parts)


def write(
    cells: Sequence[Cell],
    on_twins: Sequence[str],
    outcomes: Sequence[Outcome],
    versions: Sequence[int],
    page: Path = PAGE,
) -> None:
    """Writes the page, in English and in Chinese.

    Args:
        cells: all cells of a whole run.
        on_twins: a line for each cell on a table by Hudi's own writer.
        outcomes: what clean-ups by other engines did.
        versions: the versions of Hudi's tables.
        page: the English file.
    """
    notes = Notes()
    tables = matrix(cells, READERS, versions, notes)
    unrun = ["| engine | what it ships | source |", "|---|---|---|"]
    unrun += [f"| {one.engine} | {one.ships} | [{one.source}]({one.address}) |" for one in UNRUN]
    remarks = (
        "A mirror of a merge-on-read table shows what is compacted, and is compared with that. Where a result differs "
        "by the table's version, the cell names it."
    )
    proofs = [f"- {line}" for line in on_twins]
    text = "\n\n".join(
        [
            _INTRODUCTION.strip(),
            tables,
            textwrap.fill(remarks, _WIDTH),
            _clean_ups(outcomes),
            "## Words and faults\n" + "\n".join(notes.lines()),
            "Whether faults show on a table of the same rows by Hudi's own writer, too:\n\n" + "\n".join(proofs),
            "## Not run\nNo run shows these; their sources say which Hudi they ship. Hudi 1.0 reads versions "
            "6 and 8, Hudi 0.14 and 0.15 version 6.\n\n" + "\n".join(unrun),
            "Flink, StarRocks, Doris and Impala are not run either, and no source here says which Hudi they ship.",
        ]
    )
    page.write_text(f"{text}\n", encoding="utf-8")
    in_chinese_of(page).write_text(in_chinese(f"{text}\n"), encoding="utf-8")


def in_chinese_of(page: Path) -> Path:
    """The file of the page's Chinese twin."""
    return page.with_suffix(".zh.md")


def _clean_ups(outcomes: Sequence[Outcome]) -> str:
    """What clean-ups of mirrors by other engines did."""
    lines = [
        "| engine | on the mirror in | statement | answer | the Hudi table | the next mirror run |",
        "|---|---|---|---|---|---|",
    ]
    for outcome in outcomes:
        act = outcome.act
        mended = "the mirror is right" if outcome.mended else "the mirror is not right"
        mended = "there is no Hudi table to follow" if outcome.lost else mended
        for text, answer in zip(act.statements, outcome.answers, strict=True):
            shown = f"`{shortened(text)}` | {shortened(answer)} | {outcome.damage} | {mended}"
            lines.append(f"| {act.engine} | {act.form.capitalize()} | {shown} |")
    introduction = (
        "The same run has engines clean up the mirrors of a table with a pending batch, whose files are fourteen days "
        "old, and compares the files of the Hudi table before and after. The last statement is one that no setting of "
        "a mirror prevents."
    )
    return f"## Clean-ups by other engines\n{textwrap.fill(introduction, _WIDTH)}\n\n" + "\n".join(lines)


def counts(cells: Iterable[Cell], unrun: int) -> str:
    """The last line: how many cells are of which kind, and how many readers read an appended table in some form."""
    told = list(cells)
    kinds = Counter(cell.kind for cell in told)
    kinds[NOT_RUN] = unrun
    listed = ", ".join(f"{kinds[kind]} {kind}" for kind in (RIGHT, REFUSED, WRONG, NOT_RUN))
    return f"readers: {len(told) + unrun} cells: {listed}; {len(readers_of_appends(told))} readers read appended tables"


def readers_of_appends(cells: Iterable[Cell]) -> set[str]:
    """The readers that are right on an appended table in at least one form; Trino's connectors are one reader."""
    families = {reader.key: reader.family for reader in READERS}
    return {families[cell.reader] for cell in cells if cell.table.kind == "append" and cell.kind == RIGHT}


def _table(cells: Sequence[Cell], readers: Sequence[Reader], notes: Notes) -> str:
    kinds = [kind for kind in KINDS if any(cell.table.kind == kind for cell in cells)]
    lines = [f"| reader | {' | '.join(KINDS[kind].title for kind in kinds)} |", f"|---|{'---|' * len(kinds)}"]
    for reader in readers:
        row = [_shown(reader, [one for one in cells if one.table.kind == kind], notes) for kind in kinds]
        lines.append(f"| {reader.title} | {' | '.join(row)} |")
    return "\n".join(lines)


def _shown(reader: Reader, cells: Sequence[Cell], notes: Notes) -> str:
    """A cell's text: one for all versions where they agree."""
    mine = [cell for cell in cells if cell.reader == reader.key]
    texts: Mapping[int, str] = {cell.table.version: _text(reader, cell, notes) for cell in mine}
    if not texts:
        return NOT_RUN
    if len(set(texts.values())) == 1:
        return next(iter(texts.values()))
    return ", ".join(f"{version}: {text}" for version, text in texts.items())


def _text(reader: Reader, cell: Cell, notes: Notes) -> str:
    sentences = []
    for difference in cell.differences:
        fault = fault_of(cell, difference)
        sentences.append(f"Wrong: {fault.reason}." if fault else f"Wrong: {reader.title}: {difference}.")
    for words in cell.refused.values():
        sentences.append(f"Refused by {reader.title}: `{shortened(words)}`.")
    numbers = sorted({notes.number(sentence) for sentence in sentences})
    return " ".join([cell.kind, *(f"[{number}]" for number in numbers)])


def shortened(words: str) -> str:
    """A reader's words without the paths and times of one run."""
    plain = _TIME.sub("<time>", _PATH.sub("<path>", words))
    plain = " ".join(plain.replace("`", "'").replace("|", "/").split())
    return plain if len(plain) <= _LONGEST else f"{plain[:_LONGEST]}..."
