"""Services that tests run against, started from what this machine has installed."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

POSTGRES_URL = "SLSHUDI_TEST_POSTGRES_URL"


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of an empty PostgreSQL database: the one that the environment names, or a server of our own."""
    given = os.environ.get(POSTGRES_URL)
    if given:
        yield given
        return
    directory = Path(tempfile.mkdtemp(prefix="slshudi-postgres-"))
    try:
        owner = _unprivileged(directory)
        data = str(directory / "data")
        initdb = [_binary("initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N"]
        made = subprocess.run(initdb, cwd=directory, capture_output=True, text=True, **owner)
        if made.returncode:
            pytest.fail(f"initdb failed: {made.stderr}")
        port = _free_port()
        options = ["-h", "127.0.0.1", "-p", str(port), "-k", str(directory), "-c", "fsync=off"]
        with (directory / "log").open("wb") as log:
            server = subprocess.Popen(
                [_binary("postgres"), "-D", data, *options], cwd=directory, stdout=log, stderr=log, **owner
            )
        try:
            _wait(server, port, directory / "log")
            yield f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres"
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(30)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _binary(name: str) -> str:
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[4]))
    found = shutil.which(name) or next(map(str, reversed(versions)), None)
    if found is None:
        pytest.fail(
            f"no {name} here: install PostgreSQL's server (Debian: apt-get install postgresql), "
            f"or name an empty test database in {POSTGRES_URL}",
            pytrace=False,
        )
    return found


def _unprivileged(directory: Path) -> dict[str, Any]:
    """Arguments that start a process as a user other than root, which PostgreSQL refuses, owning `directory`."""
    if os.geteuid() != 0:
        return {}
    names = {user.pw_name for user in pwd.getpwall()}
    user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    os.chown(directory, user.pw_uid, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait(server: subprocess.Popen[Any], port: int, log: Path) -> None:
    deadline = time.monotonic() + 30
    ready = [_binary("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
    while subprocess.run(ready).returncode:
        if server.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"PostgreSQL did not start: {log.read_text()}")
        time.sleep(0.05)
