"""`python -m tests.worlds --worlds 500 [--from N] [--seed S] [--jobs 2] [--planted NAME]`: drawn worlds.

A world is its seed; those of a run are N, N + 1, ... A failed one is repeated alone by `--seed`. The last line says the
figures; the exit code whether all is well, or with `--planted` whether the planted bug was found.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.points import SITE
from tests.worlds.draw import draw
from tests.worlds.host import ROOT
from tests.worlds.planted import PLANTED, environment_of


def main() -> int:
    """Runs them; see the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.worlds", description=__doc__)
    parser.add_argument("--worlds", type=int, default=500)
    parser.add_argument("--from", type=int, default=None, dest="first", help="the first world's seed")
    parser.add_argument("--to", type=int, default=None, help="the last world's seed")
    parser.add_argument("--seed", type=int, action="append", help="this world alone; may be given again")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--planted", choices=sorted(PLANTED))
    parser.add_argument("--list", action="store_true", help="only say what is drawn")
    parser.add_argument("--templates", type=Path, help="keep the templates of tables here, for the next call")
    parser.add_argument("--job", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        return _job(Path(options.job), options.templates, options.seed)
    first = random.randrange(1 << 32) if options.first is None else options.first
    last = options.to if options.to is not None else first + options.worlds - 1
    seeds = options.seed or list(range(first, last + 1))
    if options.list:
        for seed in seeds:
            print(draw(seed))
        return 0
    print(f"worlds {seeds[0]} to {seeds[-1]}", flush=True)
    return _all(seeds, options.jobs, options.planted, options.templates)


def _all(seeds: list[int], jobs: int, planted: str | None, templates: Path | None) -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="w-") as name:
        jobs, templates = min(jobs, len(seeds)), templates or Path(name) / "templates"
        templates.mkdir(exist_ok=True)
        children = []
        for job in range(jobs):
            left = Path(name) / f"{job}.json"
            command = [sys.executable, "-m", "tests.worlds", "--job", str(left), "--templates", str(templates)]
            for seed in seeds[job::jobs]:
                command += ["--seed", str(seed)]
            environment = {**os.environ, "PYTHONPATH": f"{SITE}{os.pathsep}{ROOT}", **environment_of(planted)}
            children.append((subprocess.Popen(command, cwd=ROOT, env=environment, text=True), left))
        codes = [child.wait() for child, _ in children]
        told = [item for _, left in children if left.exists() for item in json.loads(left.read_text())]
    if any(codes) or len(told) != len(seeds):
        print(f"jobs ended with {codes}, after {len(told)} of {len(seeds)} worlds")
    for item in sorted(told, key=lambda item: item["seed"]):
        if not item["ok"]:
            print(item["text"])
    sums = {what: sum(item[what] for item in told) for what in ("lost", "doubled", "jammed")}
    other = sum(not item["ok"] and not any(item[what] for what in sums) for item in told)
    if missed := sum(item["missed"] for item in told):
        print(f"{missed} worlds ended before the point of their trouble")
    print(f"{time.monotonic() - began:.0f} s")
    figures = ", ".join(f"{count} {what}" for what, count in sums.items())
    print(f"worlds: {len(told)} worlds, {figures}{f', {other} failed otherwise' if other else ''}")
    failed = any(not item["ok"] for item in told)
    if planted:
        print(f"planted {planted}: {'found' if failed else 'NOT found'}")
        return 0 if failed else 1
    return 1 if failed or len(told) != len(seeds) else 0


def _job(left: Path, templates: Path, seeds: list[int]) -> int:
    from tests.sessions import start_spark
    from tests.worlds.place import Places
    from tests.worlds.run import run_world

    with tempfile.TemporaryDirectory(prefix="w-") as name:
        Path(name).chmod(0o755)
        places, told = Places(Path(name), start_spark(), templates), []
        for seed in seeds:
            ended = run_world(places, draw(seed))
            print(f"{ended.seconds:6.1f} s  {ended}", flush=True)
            figures = {"lost": ended.lost, "doubled": ended.doubled, "jammed": bool(ended.jammed)}
            figures["missed"] = bool(ended.missed)
            told.append({"seed": seed, "ok": ended.ok, "text": str(ended), **figures})
            left.write_text(json.dumps(told))
        places.close()
        places.spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
