"""`python -m tests.crash [--point P] [--victim V] [--step S]`: the crash matrix; the last line is its figure."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from airflow_provider_slshudi.local.process import LocalSls
from airflow_provider_slshudi.points import Point
from tests.crash.cases import Case, Step, Victim, all_cases
from tests.crash.matrix import each_its_own, run_case
from tests.crash.scheduler import Place
from tests.local.sdk import by_ip
from tests.scenarios import PROJECT
from tests.services import s3_store
from tests.sessions import start_spark

BUCKET = "crash"


@dataclass
class Outcome:
    """How the cases ended."""

    cases: int = 0
    failed: list[tuple[Case, str]] = field(default_factory=list)

    def run(self, case: Case, carry_out: Callable[[Case], str]) -> None:
        """Carries a case out and says so in one line."""
        began = time.monotonic()
        self.cases += 1
        try:
            said = f"ok      {case}: {carry_out(case)}"
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            self.failed.append((case, f"{type(error).__name__}: {error}"))
            said = f"FAILED  {case}: {type(error).__name__}: {str(error)[:500]}"
        print(f"{self.cases:4} {time.monotonic() - began:6.1f} s  {said}", flush=True)

    def __str__(self) -> str:
        lost = sum("lost" in why for _, why in self.failed)
        doubled = sum("doubled" in why or "more than once" in why for _, why in self.failed)
        other = f", {len(self.failed)} failed" if self.failed else ""
        return f"crash matrix: {self.cases} cases, {lost} lost, {doubled} doubled{other}"


def main() -> int:
    """Runs it; the exit code says whether all was well."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--point", choices=[point.value for point in Point], action="append")
    parser.add_argument("--victim", choices=[victim.value for victim in Victim], action="append")
    parser.add_argument("--step", choices=[step.value for step in Step], action="append")
    parser.add_argument("--s3", action="store_true", help="tables in an S3 store instead of on this disk")
    parser.add_argument("--list", action="store_true", help="only name the cases")
    chosen = parser.parse_args()
    cases = [
        case
        for case in all_cases()
        if (not chosen.point or case.point.value in chosen.point)
        and (not chosen.victim or case.victim.value in chosen.victim)
        and (not chosen.step or case.step.value in chosen.step)
    ]
    if chosen.list:
        print(*cases, f"{len(cases)} cases", sep="\n")
        return 0
    outcome, began = Outcome(), time.monotonic()
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="slshudi-crash-"))
        server = stack.enter_context(LocalSls(Path(name) / "sls"))
        by_ip(server.connection()).create_project(PROJECT, "tests")
        if chosen.s3:
            os.environ.update(stack.enter_context(s3_store(BUCKET)))
        spark = start_spark(chosen.s3)
        worlds = each_its_own(Path(name), spark, server, f"s3a://{BUCKET}" if chosen.s3 else "")
        for case in cases:
            if case.victim is not Victim.SCHEDULER:
                outcome.run(case, lambda case: run_case(worlds, case))
        at_scheduler = [case for case in cases if case.victim is Victim.SCHEDULER]
        if at_scheduler:
            with Place(Path(name) / "place", worlds(Step.PLAN)) as place:
                for case in at_scheduler:
                    outcome.run(case, place.run_case)
        spark.stop()
    for case, why in outcome.failed:
        print(f"failed: {case}: {why}")
    print(f"{time.monotonic() - began:.0f} s")
    print(outcome)
    return 1 if outcome.failed or not outcome.cases else 0


if __name__ == "__main__":
    raise SystemExit(main())
