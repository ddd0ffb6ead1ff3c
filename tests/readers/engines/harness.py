"""Runs one engine: `python -m tests.readers.engines.harness MODULE` answers the tables that standard input describes.

A module has `opened(settings)`, a context manager that gives an `Engine`. Each table's answer is one line on standard
output, behind ANSWER, as soon as it is there.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from tests.readers.canonical import value_of
from tests.readers.questions import COMPARISONS, COUNT, VALUES, Question

ANSWER = "@answer "
_LONGEST_WORDS = 600
Rows = list[list[str | None]]


@dataclass(frozen=True)
class Asked:
    """A table as an engine reaches it.

    Attributes:
        form: hudi, iceberg or delta.
        path: the folder of the Hudi table, which has the Delta log, too.
        metadata: Iceberg's newest metadata file; empty in other forms.
    """

    name: str
    form: str
    path: str
    metadata: str
    types: dict[str, str]
    questions: list[Question]


class Engine(Protocol):
    """A query engine over the tables of one or more forms."""

    def count(self, asked: Asked) -> int:
        """The number of rows, by the engine's own way to count."""

    def rows(self, asked: Asked, columns: Sequence[str], question: Question | None) -> Rows:
        """The columns of the rows that the filter is true of, as canonical texts; without one all rows."""


class Opens(Protocol):
    """The function `opened` of an engine's module."""

    def __call__(self, settings: Mapping[str, Any]) -> AbstractContextManager[Engine]: ...


def keeps(question: Question, text: str | None) -> bool:
    """Whether a value of the question's column, given as its text, meets the filter."""
    return text is not None and bool(COMPARISONS[question.how](value_of(question.type, text), question.value))


def answer(engine: Engine, asked: Asked) -> dict[str, Any]:
    """All that an engine says of a table: `count`, `rows`, the numbers of each question, and in `refused` the words
    with which it stopped, by query."""
    said: dict[str, Any] = {"table": asked.name, "form": asked.form, "numbers": {}, "refused": {}, "seconds": 0}
    started = time.monotonic()
    queries: list[str | Question] = [VALUES, COUNT, *asked.questions]
    for query in queries:
        name = query if isinstance(query, str) else query.name
        try:
            if query == VALUES:
                said["rows"] = engine.rows(asked, list(asked.types), None)
            elif query == COUNT:
                said["count"] = engine.count(asked)
            elif isinstance(query, Question):
                said["numbers"][name] = sorted(int(row[0] or 0) for row in engine.rows(asked, ["n"], query))
        except Exception as error:
            said["refused"][name] = words_of(error)
            if query == VALUES:
                # Its other answers would be the same error.
                break
    said["seconds"] = round(time.monotonic() - started, 1)
    return said


def words_of(error: Exception) -> str:
    """The most telling lines of an error: the first, and the innermost cause of a Java one."""
    lines = [line.strip() for line in f"{type(error).__name__}: {error}".splitlines() if line.strip()]
    if str(error) == "None":
        # PySpark's error of a Java exception without a message.
        lines[0] += f" {_first_call(error)}"
    if "An error occurred while calling" in lines[0] and len(lines) > 1:
        # Py4J's error of a Java exception.
        lines = [lines[1].lstrip(": "), *lines[2:]]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by:")]
    return (causes[-1] if causes else " ".join(lines[:3]))[:_LONGEST_WORDS]


def _first_call(error: Exception) -> str:
    """The innermost call of a Java exception that is not a check's own."""
    calls = [line.strip() for line in str(getattr(error, "stackTrace", "")).splitlines() if "at " in line]
    return next((call for call in calls if "ValidationUtils" not in call), "")


def main() -> None:
    """Answers all tables of standard input."""
    told = json.load(sys.stdin)
    opened: Opens = importlib.import_module(f"tests.readers.engines.{sys.argv[1]}").opened
    with opened(told["settings"]) as engine:
        for described in told["tables"]:
            described["questions"] = [Question.parse(one) for one in described["questions"]]
            print(ANSWER + json.dumps(answer(engine, Asked(**described))), flush=True)


if __name__ == "__main__":
    main()
