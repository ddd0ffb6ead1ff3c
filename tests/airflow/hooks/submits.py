"""Stands for spark-submit in cluster mode: what the manager says, and a driver that is this process."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import NoReturn

from airflow_provider_slshudi.handover.messages import Done, Failed, Line, Page, Spent, Told, encode
from airflow_provider_slshudi.spark.driver.remote import Remote
from airflow_provider_slshudi.spark.keyserver import Place

_DENIED = Failed("TableDenied", "it is another user's")
TOLD: dict[str, list[Told]] = {
    "well": [Line("4 rows in application_2_0002"), Spent(1.5), Done()],
    "odd bytes": [Done()],
    "fails": [_DENIED],
    "fails and is told as well": [_DENIED],
    "fails after it was done": [Done()],
    "has a page": [Page("http://node:4040")],
}
"""What the driver tells in a case."""
MANAGER = "INFO Client: Application report for application_1_0001 (state: RUNNING)"


def main(case: str, file: Path) -> int:
    """Acts as `case` says; returns the exit code."""
    print(MANAGER, flush=True)
    if case == "nobody comes":
        print("SparkException: Application application_1_0001 finished with failed status")
        return 1
    if case == "does not wait":
        return 0
    if case == "is of another version":
        Place.from_json(file.read_text()).ask(encode(Done()).replace('"version": 1', '"version": 2'))
        return 1
    driver = Remote(file)
    if case.startswith("ends before its driver"):
        if not os.fork():
            _goes_on(driver, dies="and dies" in case)
        return int("with an error" in case)
    driver.start(None)
    for message in TOLD.get(case, []):
        driver.tell(message)
    if case in ("falls silent", "has a page"):
        driver._over.set()
        driver._report()
        time.sleep(600)
    driver.close()
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
    print("4 rows in application_1_0001", flush=True)
    driver.tell(Spent(2.5))
    driver.tell(Done())
    driver.close()
    os._exit(0)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.exit(main(os.environ["CASE"], Path(arguments[arguments.index("--files") + 1].rpartition(",")[2])))
