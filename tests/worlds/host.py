"""Steps on a drawn host: a child process with its zone, locale, clock, user and place of the code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow_provider_slshudi.spark.runtime import cache_dir
from tests.crash.held import Child
from tests.exact.step import Told
from tests.machine import ROOT
from tests.points import FOLDER, armed_in
from tests.worlds.draw import Host

AIRFLOW = "worlds"
"""The name of the Airflow whose runs these are."""
WORLD = "WORLDS_ID"
"""The variable by which a world's processes are known, those that got away from it included."""
PYTHONS = "WORLDS_PYTHONS"
"""The variable that names further interpreters, each with the package, as PATH names folders."""
INSTALLED = ("C", "C.UTF-8")
END_SECONDS = 400.0
IDLE_SECONDS = "4"


class Steps(Child):
    """Steps in a child process, which leaves in a file how they went.

    Args:
        setup: what `tests.exact.step` is given.
        out: that file.
        log: where the child's output is added.
        prefix: the command before the interpreter.
        python: the interpreter.
    """

    def __init__(
        self,
        setup: Mapping[str, Any],
        out: Path,
        log: Path,
        environment: Mapping[str, str],
        prefix: Sequence[str] = (),
        python: str = sys.executable,
        place: Path = ROOT,
        umask: int = -1,
    ) -> None:
        self._out = out
        self._out.unlink(missing_ok=True)
        told = json.dumps({"airflow": AIRFLOW, **setup, "out": str(out)})
        command = [*prefix, python, "-m", "tests.exact.step", told]
        super().__init__(command, environment, log, place, umask)

    def told(self) -> Told:
        """How it went; a process that was killed could not tell."""
        if not self._out.exists():
            return Told(error="Killed", text=self.last_words())
        fields = json.loads(self._out.read_text())
        return Told(**{**fields, "done": tuple(fields["done"])})


class Away(Steps):
    """Steps in a child process on a host."""

    def __init__(self, host: Host, setup: Mapping[str, Any], folder: Path, secrets: Mapping[str, str]) -> None:
        out = _temporary(host, folder) / f"told-{setup['run']}-{'-'.join(setup['steps'])}.json".replace(" ", "_")
        kind = "session" if host.session else "resident" if host.resident else "submit"
        place = moved(folder.parent) if host.moved else ROOT
        super().__init__(
            {"launcher": kind, **setup},
            out,
            folder / "steps.log",
            {**_environment(host, folder, place), **secrets},
            _prefix(host),
            _python(host),
            place,
            host.umask,
        )


def moved(folder: Path) -> Path:
    """A copy of the package's code at another path, and with other times."""
    place = folder / "moved"
    if not place.exists():
        place.mkdir()
        ignored = shutil.ignore_patterns("__pycache__")
        name = "airflow_provider_slshudi"
        shutil.copytree(ROOT / name, place / name, ignore=ignored, copy_function=shutil.copy)
        (place / "tests").symlink_to(ROOT / "tests")
    return place


def _python(host: Host) -> str:
    others = [name for name in os.environ.get(PYTHONS, "").split(os.pathsep) if name]
    return others[(host.python - 1) % len(others)] if host.python and others else sys.executable


def _prefix(host: Host) -> list[str]:
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"] if host.container else []
    if host.uid:
        # It may read what belongs to root, the interpreter included, and write what its user may.
        rights = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
        command += ["setpriv", f"--reuid={host.uid}", f"--regid={host.uid}", "--clear-groups", *rights]
    return command


def _temporary(host: Host, folder: Path) -> Path:
    """A folder of the host's user."""
    made = folder / f"tmp-{host.uid}"
    if not made.exists():
        made.mkdir()
        os.chown(made, host.uid, host.uid)
    return made


def _environment(host: Host, folder: Path, place: Path) -> dict[str, str]:
    temporary = _temporary(host, folder)
    made = {
        **os.environ,
        "TZ": host.zone,
        "WORLDS_ZONE": host.zone,
        "LANG": host.language,
        "LC_ALL": host.language,
        "TMPDIR": str(temporary),
        "SLSHUDI_CACHE": str(cache_dir()),
        "SLSHUDI_RESIDENT_SECONDS": IDLE_SECONDS,
        "WORLDS_SLEPT": str(folder / "slept"),
        **armed_in(folder / "points", place),
        WORLD: str(folder),
    }
    if host.resident:
        # A process that stays serves nobody whose crashes are arranged.
        del made[FOLDER]
    if host.uid:
        made["HOME"] = str(temporary)
    if host.language not in INSTALLED:
        # Java takes the language of a locale that is not installed from nowhere else.
        made["JAVA_TOOL_OPTIONS"] = f"-Duser.language={host.language[:2]}"
    if host.clock:
        made |= {"LD_PRELOAD": str(clock_library(folder.parent)), "WORLDS_CLOCK_AHEAD": str(host.clock)}
    if host.ledger_clock:
        made["WORLDS_CLOCK"] = str(host.ledger_clock)
    return made


def clock_library(folder: Path) -> Path:
    """What moves a process's clock, compiled when it is first asked for."""
    made = folder / "clock.so"
    if not made.exists():
        source = Path(__file__).with_name("clock.c")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(made), str(source)], check=True)
    return made
