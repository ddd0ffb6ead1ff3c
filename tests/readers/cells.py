"""What a reader made of a table: compares its answer with the model, and names the kind of the cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.readers.canonical import text_of
from tests.readers.questions import COUNT, VALUES
from tests.readers.tables import ReaderTable

RIGHT, REFUSED, WRONG, NOT_RUN = "right", "refused", "wrong", "not run"
_SHOWN = 60


@dataclass(frozen=True)
class Difference:
    """A query that a reader answered otherwise than the model.

    Attributes:
        query: `count`, `values of COLUMN`, `rows`, or the name of a question.
        type: the type of the column that it is about; empty: of none.
        values: the canonical texts that the reader has wrong; empty where rows are missing or too many.
    """

    query: str
    type: str
    answered: str
    expected: str
    values: tuple[str | None, ...] = ()

    def __str__(self) -> str:
        return f"{self.query}: {self.answered}, and not {self.expected}"


@dataclass(frozen=True)
class Cell:
    """One reader's result on one table."""

    reader: str
    table: ReaderTable
    refused: Mapping[str, str]
    differences: tuple[Difference, ...]
    seconds: float

    @property
    def kind(self) -> str:
        """right, refused or wrong; wrong outweighs refused."""
        if self.differences:
            return WRONG
        return REFUSED if self.refused else RIGHT


def compare(reader: str, table: ReaderTable, answer: Mapping[str, Any]) -> Cell:
    """The cell of an answer."""
    differences = [*_counted(table, answer), *_valued(table, answer), *_filtered(table, answer)]
    return Cell(reader, table, answer["refused"], tuple(differences), float(answer.get("seconds", 0)))


def _counted(table: ReaderTable, answer: Mapping[str, Any]) -> list[Difference]:
    number = answer.get(COUNT)
    if number is None or number == len(table.rows):
        return []
    return [Difference(COUNT, "", str(number), str(len(table.rows)))]


def _valued(table: ReaderTable, answer: Mapping[str, Any]) -> list[Difference]:
    """Rows that are missing or too many; of the others the columns whose values differ."""
    if "rows" not in answer:
        return []
    names = list(table.types)
    place = names.index("n")
    expected = {str(row["n"]): [text_of(table.types[name], row[name]) for name in names] for row in table.rows}
    numbers = Counter(str(row[place]) for row in answer["rows"])
    if numbers != Counter(list(expected)):
        return [Difference("rows", "", _listed(list(numbers.elements())), _listed(list(expected)))]
    differences = []
    rows = {str(row[place]): row for row in answer["rows"]}
    for column, name in enumerate(names):
        wrong = [
            (number, rows[number][column], texts[column])
            for number, texts in expected.items()
            if rows[number][column] != texts[column]
        ]
        if wrong:
            number, answered, text = wrong[0]
            query = f"{VALUES} of {name}"
            shown = f"{_short(answered)} (n={number}, {len(wrong)} rows)"
            values = tuple(text for _, text, _ in wrong)
            differences.append(Difference(query, table.types[name], shown, _short(text), values))
    return differences


def _filtered(table: ReaderTable, answer: Mapping[str, Any]) -> list[Difference]:
    differences = []
    for question in table.questions:
        answered, expected = answer["numbers"].get(question.name), question.numbers(table.rows)
        if answered is not None and answered != expected:
            differences.append(Difference(question.name, question.type, _listed(answered), _listed(expected)))
    return differences


def _listed(numbers: list[Any]) -> str:
    shown = ", ".join(str(number) for number in sorted(numbers, key=_place)[:8])
    return f"{len(numbers)} rows [{shown}{', ...' if len(numbers) > 8 else ''}]"


def _place(number: Any) -> int:
    """Rows without a number, which are none of the table's, come first."""
    return -1 if number in (None, "None") else int(number)


def _short(text: str | None) -> str:
    return "NULL" if text is None else repr(text[:_SHOWN])
