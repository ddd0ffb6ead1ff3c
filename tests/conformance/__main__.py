"""`python -m tests.conformance`: runs the suite; its last line says how much of it passed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest


class Tally:
    """Counts outcomes; what fails before or after its test counts as failed."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            self.outcomes[report.outcome] += 1


def main() -> int:
    tally = Tally()
    code = pytest.main(["-q", str(Path(__file__).parent)], [tally])
    tried = sum(tally.outcomes.values())
    print(f"conformance: {tally.outcomes['passed']} of {tried} scenarios passed with the unmodified SDK")
    return int(code)


if __name__ == "__main__":
    raise SystemExit(main())
