"""Runs statements in a Spark: standard input has its settings and the statements, standard output an answer of each."""

from __future__ import annotations

import json
import sys

from tests.readers.engines.harness import ANSWER, words_of
from tests.readers.engines.spark import session_of


def main() -> None:
    """Runs each statement; an answer is its rows as text, or the words of its error."""
    told = json.load(sys.stdin)
    session = session_of(told["settings"])
    try:
        for statement in told["statements"]:
            try:
                rows = [tuple(row) for row in session.sql(statement).collect()]
                print(ANSWER + json.dumps(["done", str(rows)]), flush=True)
            except Exception as error:
                print(ANSWER + json.dumps(["refused", words_of(error)]), flush=True)
    finally:
        session.stop()


if __name__ == "__main__":
    main()
