"""What each table is asked besides its rows: one filter on each scalar type, and one on the partition."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from tests.readers.canonical import text_of, value_of

COUNT, VALUES, PARTITION = "count", "values", "partition"
COMPARISONS = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@dataclass(frozen=True)
class Question:
    """A filter: a column beside a literal. `name` is how a cell names the query, `literal` the literal's canonical
    text, `how` one of COMPARISONS."""

    name: str
    column: str
    type: str
    how: str
    literal: str

    @property
    def value(self) -> Any:
        """The literal as Python has it."""
        return value_of(self.type, self.literal)

    @classmethod
    def parse(cls, described: Mapping[str, str]) -> Question:
        """The question that `asdict` described."""
        return cls(**described)

    def numbers(self, rows: Iterable[Mapping[str, Any]]) -> list[int]:
        """The `n` of the model's rows that the filter is true of."""
        compare, literal = COMPARISONS[self.how], self.value
        return sorted(
            row["n"] for row in rows if row.get(self.column) is not None and compare(row[self.column], literal)
        )


def describe(questions: Sequence[Question]) -> list[dict[str, str]]:
    """The questions as JSON can have them."""
    return [asdict(question) for question in questions]


# Each literal is a value that some rows have; those of floats are compared for equality, since engines order NaN apart.
_FILTERS: dict[str, tuple[str, Any]] = {
    "string": ("=", "😀"),
    "binary": ("=", b"\xff\x00"),
    "float": ("=", 1.5),
    "double": ("=", 1e308),
    "int": (">=", 9),
    "bigint": ("=", 2**53 + 1),
    "date": (">", date(1970, 1, 1)),
    "timestamp": (">=", value_of("timestamp", "1767310200000000")),
    "boolean": ("=", True),
    "decimal": (">", 1),
}


def questions_of(types: Mapping[str, str], partition: str, value: str) -> list[Question]:
    """One filter on the first column of each scalar type, and one on the partition column, of type string.

    Args:
        types: the columns' types by their names.
        partition: the partition column.
        value: the partition's value to ask for.
    """
    questions = [Question(PARTITION, partition, "string", "=", value)]
    for kind, (how, literal) in _FILTERS.items():
        column = next(
            (name for name, type_ in types.items() if type_.startswith(kind) and name not in ("n", partition)), None
        )
        if column is not None:
            text = text_of(types[column], literal)
            assert text is not None
            questions.append(Question(f"filter on {kind}", column, types[column], how, text))
    return questions
