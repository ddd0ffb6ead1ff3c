"""What a run says of the tests that it skipped."""

from __future__ import annotations

from tests.needs import BRINGS, MARIADB, NATIVE, summary_of


def test_one_line_says_what_was_skipped_and_what_would_bring_it() -> None:
    said = summary_of([MARIADB] * 177 + [NATIVE] * 3 + ["on SQLite there is nothing to lose"])
    assert said.startswith("skipped: 3 since slshudi-native is not built (Rust's cargo")
    assert f"177 since {MARIADB} ({BRINGS[MARIADB]})" in said
    assert said.endswith("1 that have no meaning here") and "\n" not in said


def test_nothing_is_said_where_nothing_was_skipped() -> None:
    assert summary_of([]) == ""
