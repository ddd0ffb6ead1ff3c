"""What all troubles share: each is found by its name, a seed draws the same cases, and what is not exact says so."""

from __future__ import annotations

import pytest

from tests.exact.__main__ import main
from tests.exact.outcome import Jammed, Outcome, Report, attempt, compared
from tests.exact.trouble import TROUBLES


@pytest.mark.parametrize("name", TROUBLES)
def test_a_trouble_has_cases_of_which_a_seed_draws_the_same(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = []
    for _ in range(2):
        assert main(["--trouble", name, "--list", "--cases", "3", "--seed", "7"]) == 0
        drawn.append(capsys.readouterr().out.splitlines())
    *cases, count = drawn[0]
    assert drawn[1] == drawn[0] and len(set(cases)) == len(cases) > 0
    assert count == f"{len(cases)} cases"


@pytest.mark.parametrize("words", [["--list"], ["--trouble", "flood"], ["--trouble", "crash,hosts", "--fault", "gone"]])
def test_what_no_trouble_knows_is_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)


def test_logs_without_a_row_and_rows_too_many_are_told_apart() -> None:
    outcome = compared("a reader", ["a", "b", "b", "x"], ["a", "b", "c", "d"], excused=["d"])
    assert (outcome.logs, outcome.lost, outcome.doubled, outcome.ok) == (4, 1, 2, False)
    assert compared("a reader", ["a"], ["a"]).ok
    assert not Outcome().ok, "nothing was compared"


def test_an_error_is_the_outcome_of_its_case_alone() -> None:
    def jam(outcome: Outcome) -> None:
        raise Jammed("no command helps")

    report = Report("all", 7)
    report.outcomes += [attempt("one", lambda outcome: outcome.add(Outcome(1))), attempt("two", jam)]
    report.outcomes.append(attempt("three", lambda outcome: compared("a reader", [], ["a"]).require()))
    assert [outcome.ok for outcome in report.outcomes] == [True, False, False] and not report.ok
    assert str(report) == "all: 3 cases (seed 7): 1 lost, 0 doubled, 1 jammed, 0 failed otherwise"
