"""`python -m tests.airflow.partition_starts --hours 20`: how soon a DAG starts behind the commit that ends its hour.

A real scheduler of Airflow 3.3, with a DAG that has a run for each complete hour, and one that any event starts, in
which a consumer writes down the hour. Hours are committed one after the other, at random moments. The tail's last task
runs every two seconds, so its wait, of one second in the mean, is in the figures; in a tail it follows the commit at
once.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from statistics import median

from tests.airflow.test_real_partitions import HOURS, Place, running
from tests.commits import HOUR, hour
from tests.waiting import until

BAR_SECONDS = 5.0


def measured(place: Place, hours: int) -> dict[str, list[float]]:
    """Seconds from each commit to the start of the hour's run, and until the consumer has done its work."""
    started, reported = list[float](), list[float]()
    for number in range(hours):
        time.sleep(random.uniform(1, 4))
        value = hour(number)
        place.committing.look((number + 1) * HOUR + 300, unread=1)
        commit = time.time()
        place.committing.commit(number, rows=number + 1)
        key = value, 1, number + 1
        until(f"{value} is reported", lambda: place.reported()[key], explain=place.explain)  # noqa: B023
        reported.append(time.time() - commit)

        def start() -> str:
            runs = [run for run in place.airflow.runs(HOURS) if run["partition_key"] == value]  # noqa: B023
            return str(runs[0]["start_date"] or "") if runs else ""

        # Python 3.10 does not read a Z.
        moment = datetime.fromisoformat(
            until(f"{value} has a run", start, explain=place.explain).replace("Z", "+00:00")
        )
        started.append(moment.timestamp() - commit)
    return {"the hour's run starts": started, "a consumer has it": reported}


def main() -> int:
    """Measures and prints; the exit code says whether the median is within the bar."""
    parser = argparse.ArgumentParser(prog="python -m tests.airflow.partition_starts", description=__doc__)
    parser.add_argument("--hours", type=int, default=20)
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slshudi-starts-") as home, running(Path(home)) as place:
        seconds = measured(place, options.hours)
    for what, taken in seconds.items():
        print(f"{what}: median {median(taken):.1f} s, {min(taken):.1f} to {max(taken):.1f} s of {len(taken)} hours")
    if options.json is not None:
        options.json.write_text(json.dumps(seconds))
    return int(median(seconds["the hour's run starts"]) > BAR_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
