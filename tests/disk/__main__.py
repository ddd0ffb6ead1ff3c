"""`python -m tests.disk [--act NAME ...] [--every N] [--only pages|ledger|cuts] [--jobs 2]`: all acts, all lengths.

Each act is carried out on a disk of the table, then of the ledger, that takes 0, N, 2 N, ... pages of 4 KiB until they
are enough; then each file that it wrote is cut off. The last line says the figures, the exit code whether all is well.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.disk import cuts, pages
from tests.disk.acts import ACTS, Act
from tests.worlds.host import ROOT
from tests.worlds.place import Places
from tests.worlds.run import Ended

PARTS = ("pages", "ledger", "cuts")


def main() -> int:
    """Runs them; see the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.disk", description=__doc__)
    parser.add_argument("--act", action="append", choices=sorted(ACTS), help="this one alone; may be given again")
    parser.add_argument("--only", choices=PARTS, action="append", help="this part alone; may be given again")
    parser.add_argument("--every", type=int, default=1, help="pages between two cases")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--job", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    names, parts = options.act or list(ACTS), options.only or list(PARTS)
    if options.job:
        return _job(options.job, names, parts, options.every)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="d-") as folder:
        children = []
        for job in range(min(options.jobs, len(names))):
            told = Path(folder) / f"{job}.json"
            command = [sys.executable, "-m", "tests.disk", "--job", str(told), "--every", str(options.every)]
            command += [word for name in names[job :: options.jobs] for word in ("--act", name)]
            command += [word for part in parts for word in ("--only", part)]
            children.append((subprocess.Popen(command, cwd=ROOT, env=os.environ), told))
        codes = [child.wait() for child, _ in children]
        cases = [case for _, told in children if told.exists() for case in json.loads(told.read_text())]
    sums = {what: sum(case[what] for case in cases) for what in ("lost", "doubled", "jammed", "left")}
    other = sum(not case["ok"] and not any(case[what] for what in sums) for case in cases)
    figures = ", ".join(f"{count} {what}" for what, count in sums.items())
    print(f"{time.monotonic() - began:.0f} s")
    if asked := sum(case["put"] for case in cases):
        print(f"{asked} errors named a cut file and asked for it to be put back")
    print(f"disk: {len(cases)} cases, {figures}{f', {other} failed otherwise' if other else ''}")
    return 1 if any(codes) or not all(case["ok"] for case in cases) else 0


def _job(told: Path, names: list[str], parts: list[str], every: int) -> int:
    from tests.sessions import start_spark

    cases: list[dict[str, bool]] = []
    with tempfile.TemporaryDirectory(prefix="d-") as folder:
        places = Places(Path(folder), start_spark())
        for name in names:
            for part in parts:
                for ended in _cases(places, ACTS[name], part, every):
                    print(
                        f"{part}: {ended}" if not ended.ok else f"{part}: ok  {'; '.join(ended.notes)[:200]}",
                        flush=True,
                    )
                    cases.append(_figures(ended))
                    told.write_text(json.dumps(cases))
        places.close()
        places.spark.stop()
    return 0


def _figures(ended: Ended) -> dict[str, bool]:
    return {
        "ok": ended.ok,
        "put": cuts.PUT_BACK in ended.notes,
        "lost": ended.lost,
        "doubled": ended.doubled,
        "jammed": bool(ended.jammed),
        "left": any("left" in fault or "no commit lists" in fault for fault in ended.faults),
    }


def _cases(places: Places, act: Act, part: str, every: int) -> Iterator[Ended]:
    if part == "cuts":
        return cuts.sweep(places, act)
    return pages.sweep(places, act, every, ledger_disk=part == "ledger")


if __name__ == "__main__":
    raise SystemExit(main())
