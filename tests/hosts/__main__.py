"""`python -m tests.hosts [--point P] [--trouble T]`: two machines, one of which is lost, cut off or stands still at any
point; the last line is the figure."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from airflow_provider_slshudi.system.points import Point
from tests.crash.outcome import Outcome
from tests.hosts.cases import Case, Trouble, all_of_them, run_case, world
from tests.sessions import start_spark


def main() -> int:
    """Runs it; the exit code says whether all was well."""
    parser = argparse.ArgumentParser(prog="python -m tests.hosts", description=__doc__)
    parser.add_argument("--point", choices=[point.value for point in Point], action="append")
    parser.add_argument("--trouble", choices=[trouble.name for trouble in Trouble], action="append")
    parser.add_argument("--list", action="store_true", help="only name the cases")
    chosen = parser.parse_args()
    cases = [
        case
        for case in all_of_them()
        if (not chosen.point or case.point.value in chosen.point)
        and (not chosen.trouble or case.trouble.name in chosen.trouble)
    ]
    if chosen.list:
        print(*cases, f"{len(cases)} cases", sep="\n")
        return 0
    outcome = Outcome[Case]("hosts")
    with tempfile.TemporaryDirectory(prefix="slshudi-hosts-") as name, world(Path(name), start_spark()) as made:
        for case in cases:
            outcome.run(case, lambda case: run_case(made, case))
    outcome.tell()
    print(outcome)
    return 1 if outcome.failed or not outcome.cases else 0


if __name__ == "__main__":
    raise SystemExit(main())
