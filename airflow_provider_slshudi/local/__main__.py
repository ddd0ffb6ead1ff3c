"""`python -m airflow_provider_slshudi.local`: the server in this process, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import contextlib
import errno
import fcntl
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import uvicorn

from airflow_provider_slshudi.local.app import application
from airflow_provider_slshudi.local.process import HOST, READY, SECRET, STOP_WITH_STDIN, TOKEN
from airflow_provider_slshudi.local.signature import Account
from airflow_provider_slshudi.local.store import Store


def main() -> int:
    """Serve until stopped; returns the exit code."""
    arguments = _arguments()
    secret = os.environ.get(SECRET, "")
    if not secret:
        return _refuse(f"environment variable {SECRET} is not set: it is the secret of the key that clients sign with")
    accounts = {arguments.access_key_id: Account(secret, os.environ.get(TOKEN, ""))}
    try:
        with _locked(arguments.directory), _listening(arguments.host, arguments.port) as listener:
            _serve(listener, Store(arguments.directory), accounts)
    except _Unusable as unusable:
        return _refuse(str(unusable))
    return 0


class _Unusable(Exception):
    """The directory or the port belongs to somebody else."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m airflow_provider_slshudi.local", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="where the logs are kept; made if missing")
    parser.add_argument("--host", default=HOST, help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, required=True, help="port to listen on; 0 takes a free one")
    parser.add_argument(
        "--access-key-id", required=True, help=f"the key that clients sign with; its secret is in {SECRET}"
    )
    return parser.parse_args()


def _refuse(reason: str) -> int:
    print(reason, file=sys.stderr)
    return 2


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _Unusable(
                f"{directory} is served by another process: stop that one or name another directory"
            ) from None
        yield


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            raise _Unusable(
                f"port {port} of {host} cannot be had ({error.strerror}): stop what uses it or take another (0: any)"
            ) from None
        listener.listen()
        yield listener


def _serve(listener: socket.socket, store: Store, accounts: dict[str, Account]) -> None:
    config = uvicorn.Config(
        application(store, accounts),
        http="httptools",  # h11 does not take the absolute-form targets that clients send to a proxy
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_keep_alive=75,  # longer than a client's pause between pulls
        timeout_graceful_shutdown=5,
    )
    if os.environ.get(STOP_WITH_STDIN):
        threading.Thread(target=_stop_with, args=(sys.stdin,), daemon=True).start()
    # The listener already queues connections, so the server can be reached from here on.
    host, port = listener.getsockname()
    print(f"{READY}{host}:{port}", flush=True)
    uvicorn.Server(config).run(sockets=[listener])


def _stop_with(parent: TextIO) -> None:
    """End this process when the parent, killed or not, lets go of our standard input."""
    parent.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    raise SystemExit(main())
