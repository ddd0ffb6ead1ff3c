"""`python -m tests.exact --trouble NAME[,NAME...] [--cases N] [--seed S] [--jobs J] [--list]`: troubles, case by case.

Through each trouble of a pipeline every log of the service has to be in the table once. `--trouble NAME --help` says
which options a trouble has of its own. The last line says the figures, the exit code whether all cases were exact, or
with `--planted` whether the planted bug was found.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from argparse import SUPPRESS, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from airflow_provider_slshudi.system.processes import ends_with_parent
from tests.exact.outcome import Outcome, Report
from tests.exact.trouble import TROUBLES, Trouble, trouble_of
from tests.machine import ROOT
from tests.pipelines import TABLE_VERSION


def main(words: Sequence[str]) -> int:
    """Runs the troubles that the command names, one after the other."""
    common = _parser(__doc__, add_help=False).parse_known_args(words)[0]
    names = [name for name in common.trouble.split(",") if name]
    if not names or set(names) - TROUBLES.keys():
        parser = _parser(__doc__)
        parser.parse_known_args(words)
        parser.error(f"--trouble takes names of {', '.join(TROUBLES)}")
    seed = random.randrange(1 << 32) if common.seed is None else common.seed
    troubles = {name: trouble_of(name) for name in names}
    options = {name: _options(trouble, words, seed) for name, trouble in troubles.items()}
    if unknown := set.intersection(*(set(rest) for _, rest in options.values())):
        _parser(__doc__).error(f"none of {', '.join(names)} has {' '.join(word for word in words if word in unknown)}")
    if common.job is not None:
        _job(troubles[names[0]], options[names[0]][0])
        return 0
    if common.list:
        for name, trouble in troubles.items():
            cases = _cases(trouble, options[name][0])
            print(*cases, f"{len(cases)} cases", sep="\n")
        return 0
    runs = []
    for name, trouble in troubles.items():
        own, rest = options[name]
        runs.append(_run(name, trouble, own, [word for word in words if word not in rest]))
    print(*(report for report, _ in runs), sep="\n")
    return max(code for _, code in runs)


def _parser(about: str | None, **more: Any) -> ArgumentParser:
    form = RawDescriptionHelpFormatter
    parser = ArgumentParser("python -m tests.exact", None, about, formatter_class=form, allow_abbrev=False, **more)
    parser.add_argument("--trouble", default="", metavar="NAME[,NAME...]", help=f"of {', '.join(TROUBLES)}")
    parser.add_argument("--cases", type=int, metavar="N", help="at most so many cases, drawn by the seed")
    parser.add_argument("--seed", type=int, metavar="S", help="of all that is drawn; without it, another each time")
    parser.add_argument("--jobs", type=int, metavar="J", help="processes that share the cases")
    parser.add_argument("--table-version", choices=("6", "8", "9"), help="Hudi's, of the tables; the newest by default")
    parser.add_argument("--list", action="store_true", help="only name the cases")
    parser.add_argument("--job", type=int, help=SUPPRESS)
    parser.add_argument("--home", type=Path, help=SUPPRESS)
    return parser


def _options(trouble: Trouble[Any], words: Sequence[str], seed: int) -> tuple[Namespace, list[str]]:
    """The options of a trouble, and the words that it does not know."""
    parser = _parser(trouble.__doc__)
    trouble.add_options(parser)
    if trouble.planted:
        parser.add_argument("--planted", choices=sorted(trouble.planted), help="plant a bug, to see that it is found")
    options, rest = parser.parse_known_args(words)
    options.seed, options.jobs = seed, options.jobs or trouble.jobs
    return options, rest


def _cases(trouble: Trouble[Any], options: Namespace) -> list[Any]:
    """The cases of a trouble, or as many of them as were asked for, in their order."""
    cases = [*trouble.cases(options)]
    count = len(cases) if options.cases is None else min(options.cases, len(cases))
    return [cases[number] for number in sorted(random.Random(options.seed).sample(range(len(cases)), count))]


def _run(name: str, trouble: Trouble[Any], options: Namespace, words: Sequence[str]) -> tuple[Report, int]:
    """Has processes share the cases; gives the report and the exit code."""
    began, count, report = time.monotonic(), len(_cases(trouble, options)), Report(name, options.seed)
    # The names of sockets in it are long.
    home = Path(tempfile.mkdtemp(prefix="x-"))
    home.chmod(0o755)
    print(f"{name}: {count} cases, seed {options.seed}; folder {home}", flush=True)
    jobs = str(max(1, min(options.jobs, count)))
    command = [sys.executable, "-m", "tests.exact", *words, "--trouble", name, "--seed", str(options.seed)]
    command += ["--home", str(home), "--jobs", jobs, "--job"]
    version = {TABLE_VERSION: options.table_version} if options.table_version else {}
    environment = {**os.environ, **version, **trouble.environment(options)}
    children = [
        subprocess.Popen([*command, str(job)], cwd=ROOT, env=environment, preexec_fn=ends_with_parent(signal.SIGTERM))
        for job in range(int(jobs))
    ]

    def end(*_: object) -> None:
        for child in children:
            child.terminate()
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    try:
        codes = [child.wait() for child in children]
        report.outcomes += _outcomes(home)
    finally:
        for child in children:
            child.wait()
        if not trouble.keeps or report.ok:
            shutil.rmtree(home, ignore_errors=True)
    print(*report.failures(), f"{time.monotonic() - began:.0f} s", sep="\n")
    if any(codes):
        print(f"{name}: processes ended with {codes}")
    if getattr(options, "planted", None) is None:
        return report, 0 if report.ok and not any(codes) else 1
    is_found = any(not outcome.ok for outcome in report.outcomes)
    print(f"planted {options.planted}: {'found' if is_found else 'NOT found'}")
    return report, 0 if is_found else 1


def _job(trouble: Trouble[Any], options: Namespace) -> None:
    """Carries a process's share of the cases out; each outcome is a line of a file of its own."""
    # SIGTERM ends the cases as Ctrl-C does, with all that they started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = options.home / str(options.job)
    folder.mkdir()
    folder.chmod(0o755)
    cases = _cases(trouble, options)[options.job :: options.jobs]
    with (options.home / f"{options.job}.jsonl").open("w") as file:
        for number, outcome in enumerate(trouble.run(cases, options, folder), 1):
            print(f"{number:4} {outcome.seconds:6.1f} s  {outcome}", flush=True)
            file.write(json.dumps(vars(outcome)) + "\n")
            file.flush()


def _outcomes(home: Path) -> Iterator[Outcome]:
    for file in sorted(home.glob("*.jsonl")):
        for line in file.read_text().splitlines():
            fields = json.loads(line)
            yield Outcome(**{**fields, "figures": Counter(fields["figures"])})


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
