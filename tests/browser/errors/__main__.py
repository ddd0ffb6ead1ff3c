"""`python -m tests.browser.errors [NAME ...]`: every error of the table, and two states, made and put right in Airflow.

Prints a line for each: its name, seconds, rows counted, and what put it right. The last line says how many rows of the
manual's table and states passed; ends with 1 where one did not. With names only those are played.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from airflow_provider_slshudi.system.processes import adopt_orphans
from tests.browser.errors.rows import NOT_YET, SCENARIOS, STATES
from tests.browser.errors.run import play_all
from tests.browser.errors.world import world
from tests.manual import error_rows


def main() -> int:
    """Plays them."""
    parser = argparse.ArgumentParser(prog="python -m tests.browser.errors", description=__doc__)
    parser.add_argument("errors", nargs="*", help="these alone")
    parser.add_argument("--jobs", type=int, default=2, help="so many side by side")
    parser.add_argument("--keep", action="store_true", help="leave the folder with logs, tables and ledger")
    given = parser.parse_args()
    scenarios = {**SCENARIOS, **STATES}
    if unknown := set(given.errors) - scenarios.keys():
        parser.error(f"no scenario of {', '.join(sorted(unknown))}")
    adopt_orphans()
    begin, home = time.monotonic(), Path(tempfile.mkdtemp(prefix="slshudi-errors-"))
    home.chmod(0o755)  # the database's server is another user's
    print(home, flush=True)
    chosen = [scenarios[name] for name in given.errors or scenarios]
    with world(home, postgres=True) as made:
        played = play_all(made, chosen, given.jobs)
    if not given.keep:
        shutil.rmtree(home, ignore_errors=True)
    well = {item.error for item in played if not item.wrong}
    for name, why in NOT_YET.items():
        print(f"{name:19} not yet: {why}")
    rows = [*error_rows(), *((name,) for name in STATES)]
    wanted = [row for row in rows if not given.errors or set(row) & set(given.errors)]
    passed = [row for row in wanted if all(name in well or (given.errors and name not in given.errors) for name in row)]
    minutes = (time.monotonic() - begin) / 60
    print(f"{len(passed)} of {len(wanted)} were put right from the pages, in {minutes:.0f} min")
    return 0 if len(passed) == len(wanted) else 1


if __name__ == "__main__":
    sys.exit(main())
