"""Stands for spark-submit in cluster mode: what the manager says, and a driver that is this process."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import NoReturn

from airflow_provider_slshudi.handover.job_order import CPU, PAGE
from airflow_provider_slshudi.spark.driver.remote import Remote

MANAGER = "INFO Client: Application report for application_1_0001 (state: RUNNING)"


def main(case: str, file: Path) -> int:
    """Acts as `case` says; returns the exit code."""
    print(MANAGER, flush=True)
    if case == "nobody comes":
        print("SparkException: Application application_1_0001 finished with failed status")
        return 1
    if case == "does not wait":
        return 0
    driver = Remote(file)
    if case.startswith("ends before its driver"):
        if not os.fork():
            _goes_on(driver, dies="and dies" in case)
        return int("with an error" in case)
    driver.start(None)
    lines = {
        "well": ["4 rows in application_2_0002", f"{CPU}1.5"],
        "fails": ["slshudi: TableDenied: it is somebody else's"],
        "fails and is told as well": ["slshudi: TableDenied: it is somebody else's"],
        "has a page": [f"{PAGE}http://node:4040"],
    }
    print(*lines.get(case, []), sep="\n", flush=True)
    if case in ("falls silent", "has a page"):
        driver._over.set()
        driver._report()
        time.sleep(600)
    driver.close(done=case in ("well", "odd bytes", "fails after it was done"))
    sys.stdout.flush()
    if case == "odd bytes":
        os.write(1, b"diagnostics: \xb4\xed\n" + f"{MANAGER}\n".encode() * 2000 + b"the last word\n")
    for _ in range(60):
        os.write(1, f"{MANAGER}\n".encode())
    return int(case in ("fails", "fails after it was done"))


def _goes_on(driver: Remote, dies: bool) -> NoReturn:
    """A driver that does not keep spark-submit's output open."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    driver.start(None)
    if dies:
        os._exit(1)
    time.sleep(5)
    print(f"4 rows in application_1_0001\n{CPU}2.5", flush=True)
    driver.close(done=True)
    os._exit(0)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.exit(main(os.environ["CASE"], Path(arguments[arguments.index("--files") + 1].rpartition(",")[2])))
