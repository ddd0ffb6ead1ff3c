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

from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.local.app import Service, application
from airflow_provider_slshudi.local.certificate import Certificate
from airflow_provider_slshudi.local.faultplan import Faults
from airflow_provider_slshudi.local.process import HOST, READY, SECRET, STOP_WITH_STDIN, TOKEN, certificate_directory
from airflow_provider_slshudi.local.protocol import Protocol
from airflow_provider_slshudi.local.quotas import Limits, Quotas
from airflow_provider_slshudi.local.signature import Account
from airflow_provider_slshudi.local.store import DAY, Store
from airflow_provider_slshudi.system.secrets import hidden_in_variables

_ABOUT = "An SLS-compatible server for one machine, in the foreground until SIGTERM or SIGINT."
_EPILOG = f"""environment:
  {SECRET}        the secret of the access key; required
  {TOKEN}  the token that must come with it, as with temporary (STS) keys

When it listens it prints one line, "{READY}HOST:PORT"."""


def main() -> int:
    """Serve until stopped; returns the exit code."""
    arguments = _arguments()
    secret = os.environ.get(SECRET, "")
    if not secret:
        return _refuse(f"environment variable {SECRET} is not set: it is the secret of the key that clients sign with")
    if hidden := hidden_in_variables((SECRET, TOKEN), only_ascii=True):
        return _refuse(hidden)
    accounts = {arguments.access_key_id: Account(secret, os.environ.get(TOKEN, ""))}
    try:
        limits = None if arguments.quotas is None else Limits.parse(arguments.quotas)
        with _locked(arguments.directory), _listening(arguments.host, arguments.port) as listener:
            store = Store(arguments.directory, arguments.day)
            _serve(listener, Service(store, accounts, Quotas(limits), Faults(arguments.faults)), arguments)
    except (_Unusable, ConfigError) as unusable:
        return _refuse(str(unusable))
    return 0


class _Unusable(Exception):
    """The directory or the port belongs to another process."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="slshudi local-sls",
        description=_ABOUT,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--directory", type=Path, required=True, help="where the logs are kept; made if missing")
    add("--host", default=HOST, help="address to listen on (default: %(default)s)")
    add("--port", type=int, required=True, help="port to listen on; 0 takes a free one")
    add("--access-key-id", required=True, help=f"the key that clients sign with; its secret is in {SECRET}")
    add("--tls", action="store_true", help="speak TLS; clients trust DIRECTORY/tls/ca.pem")
    add(
        "--quotas",
        nargs="*",
        metavar="NAME=NUMBER",
        help="refuse what exceeds the service's quotas, or these; names and numbers: docs/local-server.md",
    )
    add("--faults", type=_existing, metavar="FILE", help="a fault plan (YAML or JSON), read again when it changes")
    add(
        "--day",
        type=_seconds,
        default=DAY,
        metavar="SECONDS",
        help="how long a day of a logstore's ttl lasts (default: %(default)s); a short one shows logs expiring",
    )
    return parser.parse_args()


def _existing(text: str) -> Path:
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is no file")
    return Path(text)


def _seconds(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 1")
    return int(text)


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


def _serve(listener: socket.socket, service: Service, arguments: argparse.Namespace) -> None:
    certificate = Certificate.of(certificate_directory(arguments.directory)) if arguments.tls else None
    config = uvicorn.Config(
        application(service),
        http=Protocol,
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="error",
        server_header=False,
        timeout_keep_alive=75,  # longer than a client's pause between pulls
        timeout_graceful_shutdown=5,
        ssl_certfile=certificate.chain if certificate else None,
        ssl_keyfile=certificate.key if certificate else None,
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
