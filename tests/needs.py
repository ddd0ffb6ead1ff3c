"""What some tests need beyond `make setup`, and what brings it."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.services import has_redis

CHROMIUM = "/usr/bin/chromium"
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
_OWN = Path(__file__).parents[1] / ".dbt" / "bin"
DBT = shutil.which("dbt", path=_OWN) or shutil.which("dbt")
"""The program, in an environment of its own."""

NATIVE, MARIADB, ROOT = "slshudi-native is not built", "MariaDB is not here", "the user is not root"
KUBERNETES, PGBOUNCER = "Kubernetes' API server is not here", "pgbouncer is not here"
OTHERS = "this Python is in a folder that other users may not enter"
_CHROMIUM, _FAKETIME, _TOPOLOGY = "Chromium is not here", "libfaketime is not here", "Celery or Redis is not here"
_DBT, DELTALAKE = "dbt is not here", "deltalake is not here"
BRINGS = {
    NATIVE: "Rust's cargo, then `make setup`",
    MARIADB: "`apt-get install mariadb-server-core mariadb-client-core`",
    _CHROMIUM: "`apt-get install chromium`",
    _FAKETIME: "`apt-get install faketime`",
    _TOPOLOGY: "`apt-get install redis-server`, then `make topology`",
    PGBOUNCER: "`apt-get install pgbouncer`",
    KUBERNETES: "Go, then `make kubernetes`",
    _DBT: "`python3 -m venv .dbt && .dbt/bin/pip install -r dags/dbt/requirements.txt`",
    DELTALAKE: "Python 3.11 or newer",
    ROOT: "a run as root",
    OTHERS: "a Python elsewhere, then `rm -r .venv` and `make setup PYTHON=/usr/bin/python3`",
}
"""By the reason of a skip, what a person does so that the test runs."""

needs_native = pytest.mark.skipif(find_spec("slshudi_native") is None, reason=NATIVE)
needs_chromium = pytest.mark.skipif(not Path(CHROMIUM).exists(), reason=_CHROMIUM)
needs_faketime = pytest.mark.skipif(not FAKETIME.exists(), reason=_FAKETIME)
needs_dbt = pytest.mark.skipif(DBT is None, reason=_DBT)
needs_deltalake = pytest.mark.skipif(find_spec("deltalake") is None, reason=DELTALAKE)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason=ROOT)
needs_topology = pytest.mark.skipif(find_spec("celery") is None or not has_redis(), reason=_TOPOLOGY)


def summary_of(reasons: Iterable[str]) -> str:
    """One line that says how many tests were skipped for want of what, and what brings it; empty if none was.

    A reason that is not in `BRINGS` has nothing that brings it: the test has no meaning in this run.
    """
    counts = Counter(reasons)
    lacking = {reason: counts.pop(reason) for reason in BRINGS if reason in counts}
    said = [f"{count} since {reason} ({BRINGS[reason]})" for reason, count in lacking.items()]
    if counts:
        said.append(f"{sum(counts.values())} that have no meaning here")
    return f"skipped: {', '.join(said)}" if said else ""
