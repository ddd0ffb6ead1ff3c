"""Runs the demo's proof and the tests under a real scheduler on each minor version of Airflow that the package names.

`airflows.py [AIRFLOW PYTHON]`, `airflows.py 3.1 3.10` say; without arguments, the corners of both. Run by `make
airflows`, with an environment of each pair below .airflows/, which a second run uses again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from setup import ROOT, UV_PROGRAM, index_environment, install, install_native, run

CORNERS = (("3.1", "3.10"), ("3.1", "3.12"), ("3.2", "3.11"), ("3.3", "3.10"), ("3.3", "3.12"))
TESTS = ("tests/airflow/test_real_scheduler.py", "tests/airflow/test_real_partitions.py")


def main() -> None:
    """Does all of it, and says at the end how each pair went."""
    pairs = [(sys.argv[1], sys.argv[2])] if len(sys.argv) == 3 else CORNERS
    told = {pair: proven(*pair) for pair in pairs}
    for (airflow, python), words in told.items():
        print(f"Airflow {airflow}, Python {python}: {words}")
    if any(words.startswith("FAILED") for words in told.values()):
        raise SystemExit(1)


def proven(airflow: str, version: str) -> str:
    """Makes the environment of a pair, and runs both; says the time of each, or which failed."""
    home = ROOT / ".airflows" / f"{airflow}-{version}"
    python = home / "bin" / "python"
    environment = index_environment()
    if not python.exists():
        run([UV_PROGRAM, "venv", "--quiet", "--python", interpreter(version), home], environment)
    install(python, "-e", f"{ROOT}[dev]", f"apache-airflow=={airflow}.*")
    install_native(environment, python)
    environment = {**os.environ, "PATH": os.pathsep.join([str(home / "bin"), os.environ.get("PATH", os.defpath)])}
    demo: list[str | Path] = [
        home / "bin" / "slshudi",
        "demo",
        "--exit",
        "--directory",
        home / "demo",
        "--port",
        "8090",
    ]
    words = []
    tests: list[str | Path] = [python, "-m", "pytest", "-q", *TESTS]
    for name, command in (("demo", demo), ("scheduler", tests)):
        print(f"airflows: {airflow} on Python {version}, {name}", flush=True)
        start = time.monotonic()
        if subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL).returncode:
            return f"FAILED: {name}"
        words.append(f"{name} {time.monotonic() - start:.0f} s")
    return ", ".join(words)


def interpreter(version: str) -> str:
    """A Python of a minor version: one of PATH that runs, or pyenv's newest."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = sorted(pyenv.glob(f"{version}.*/bin/python"), key=lambda path: int(path.parts[-3].rpartition(".")[2]))
    for candidate in (shutil.which(f"python{version}"), *map(str, reversed(found))):
        if candidate and not subprocess.run([candidate, "-c", "import venv"], capture_output=True).returncode:
            return candidate
    raise SystemExit(f"airflows: no Python {version} was found, neither on PATH nor below {pyenv}")


if __name__ == "__main__":
    main()
