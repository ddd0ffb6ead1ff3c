"""`python -m tests.crash [--point P] [--victim V] [--step S]`: the crash matrix; the last line is its figure."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from airflow_provider_slshudi.local.process import LocalSls
from airflow_provider_slshudi.system.points import Point
from tests.crash.cases import Case, Step, Victim, all_cases, woken_cases
from tests.crash.matrix import each_its_own, run_case
from tests.crash.outcome import Outcome
from tests.crash.scheduler import Place
from tests.hadoop import hadoop
from tests.local.sdk import by_ip
from tests.pipelines import TABLE_VERSION
from tests.scenarios import PROJECT
from tests.services import s3_store
from tests.sessions import start_spark

BUCKET = "crash"


def main() -> int:
    """Runs it; the exit code says whether all was well."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--point", choices=[point.value for point in Point], action="append")
    parser.add_argument("--victim", choices=[victim.value for victim in Victim], action="append")
    parser.add_argument("--step", choices=[step.value for step in Step], action="append")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--s3", action="store_true", help="tables in an S3 store instead of on this disk")
    where.add_argument("--hdfs", action="store_true", help="tables in HDFS")
    parser.add_argument("--resident", action="store_true", help="a process that stays does the jobs; no schedulers")
    parser.add_argument("--table-version", help="Hudi's version of the tables; the newest by default")
    parser.add_argument("--list", action="store_true", help="only name the cases")
    chosen = parser.parse_args()
    if chosen.table_version:
        os.environ[TABLE_VERSION] = chosen.table_version
    cases = [
        case
        for case in (*all_cases(), *woken_cases())
        if (not chosen.point or case.point.value in chosen.point)
        and (not chosen.victim or case.victim.value in chosen.victim)
        and (not chosen.step or case.step.value in chosen.step)
        and (not chosen.resident or case.victim is not Victim.SCHEDULER)
    ]
    if chosen.list:
        print(*cases, f"{len(cases)} cases", sep="\n")
        return 0
    outcome, began = Outcome[Case]("crash matrix"), time.monotonic()
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="slshudi-crash-"))
        server = stack.enter_context(LocalSls(Path(name) / "sls"))
        by_ip(server.connection()).create_project(PROJECT, "tests")
        lake = ""
        if chosen.s3:
            os.environ.update(stack.enter_context(s3_store(BUCKET)))
            lake = f"s3a://{BUCKET}"
        elif chosen.hdfs:
            cluster = stack.enter_context(hadoop(nodes=0))
            os.environ["HADOOP_CONF_DIR"], lake = str(cluster.settings), f"{cluster.files}/{BUCKET}"
        spark = start_spark(lake if chosen.s3 else "")
        worlds = each_its_own(Path(name), spark, server, lake, chosen.resident)
        for case in cases:
            if case.victim is not Victim.SCHEDULER:
                outcome.run(case, lambda case: run_case(worlds, case))
        at_scheduler = [case for case in cases if case.victim is Victim.SCHEDULER]
        if at_scheduler:
            with Place(Path(name) / "place", worlds(Step.PLAN)) as place:
                for case in at_scheduler:
                    outcome.run(case, place.run_case)
        spark.stop()
    outcome.tell()
    print(f"{time.monotonic() - began:.0f} s")
    print(outcome)
    return 1 if outcome.failed or not outcome.cases else 0


if __name__ == "__main__":
    raise SystemExit(main())
