"""The server as a child process."""

from __future__ import annotations

import os
import secrets
import selectors
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from airflow_provider_slshudi.exceptions import RuntimeMissing
from airflow_provider_slshudi.local.files import replace_text
from airflow_provider_slshudi.sls.connection import AuthVersion, SlsConnection
from airflow_provider_slshudi.system.secrets import Secret

HOST = "127.0.0.1"
READY = "listening on "
"""The beginning of the child's only line; the endpoint follows."""

SECRET = "SLSHUDI_LOCAL_SECRET"  # noqa: S105 - the names of environment variables
TOKEN = "SLSHUDI_LOCAL_SECRET_TOKEN"  # noqa: S105
STOP_WITH_STDIN = "SLSHUDI_LOCAL_STOP_WITH_STDIN"


def certificate_directory(directory: Path) -> Path:
    """The directory in which a server over `directory` keeps its certificate."""
    return directory / "tls"


_START_SECONDS = 30.0
_STOP_SECONDS = 10.0


class LocalSls:
    """A running server over `directory`, which survives it; use it in a `with`, or call `start` and `stop`.

    It listens on 127.0.0.1 only. `port` 0 takes a free one. It ends with this process, even if that is killed.
    With `security_token` clients must send that token, as with temporary keys. Its log is `directory/server.log`.
    `tls` makes it speak TLS: let clients trust `authority`. `quotas` are texts such as `shard_reads=5`; None enforces
    none, an empty list the service's own. `day` is how many seconds a day of a logstore's ttl lasts. `faults` is a
    fault plan: a mapping, or YAML or JSON text; set the attribute to change it while the server runs.
    Raises ConfigError for malformed quotas and plans.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        port: int = 0,
        access_key_id: str = "local",
        access_key_secret: str = "",
        security_token: str = "",
        *,
        tls: bool = False,
        quotas: Sequence[str] | None = None,
        day: int = 24 * 60 * 60,
        faults: object = None,
    ) -> None:
        self.directory, self.port, self.access_key_id = Path(directory), port, access_key_id
        self.endpoint = ""
        self._secret = access_key_secret or secrets.token_hex(16)
        self._token, self._tls, self._quotas, self._day = security_token, tls, quotas, day
        self.faults = faults
        self._process: subprocess.Popen[str] | None = None

    def __repr__(self) -> str:
        return f"LocalSls({str(self.directory)!r}, endpoint={self.endpoint!r})"

    def __enter__(self) -> LocalSls:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The server's process id."""
        if self._process is None:
            raise RuntimeError("the local SLS server is not running")
        return self._process.pid

    @property
    def authority(self) -> Path:
        """The certificate that clients of a server with TLS trust, for example by REQUESTS_CA_BUNDLE."""
        return certificate_directory(self.directory) / "ca.pem"

    @property
    def faults(self) -> object:
        """The fault plan. A new one counts from the next request on."""
        return self._faults

    @faults.setter
    def faults(self, plan: object) -> None:
        from airflow_provider_slshudi.local.faultplan import Plan

        parsed = Plan.parse(plan, "fault plan")
        self._faults = plan
        replace_text(self._plan(), parsed.model_dump_json(indent=1))

    def injected(self) -> Counter[tuple[str, str]]:
        """How many faults were made, by operation and kind."""
        from airflow_provider_slshudi.local.faultplan import log_of

        noted = log_of(self._plan())
        lines = noted.read_text().splitlines() if noted.exists() else []
        return Counter((line.split()[0], line.split()[1]) for line in lines)

    def start(self) -> None:
        """Start it and wait until it listens. Raises RuntimeMissing, with the child's own words, if it does not."""
        if self._process is not None:
            raise RuntimeError(f"{self!r} is running already: stop it first")
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "airflow_provider_slshudi.local", "--directory", str(self.directory)]
        command += ["--port", str(self.port), "--access-key-id", self.access_key_id]
        command += ["--day", str(self._day), "--faults", str(self._plan())]
        command += ["--tls"] if self._tls else []
        command += ["--quotas", *self._quotas] if self._quotas is not None else []
        environment = {**os.environ, SECRET: self._secret, TOKEN: self._token, STOP_WITH_STDIN: "1"}
        with self._log().open("w") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment, text=True
            )
        line = self._first_line()
        if not line.startswith(READY):
            self.stop()
            raise RuntimeMissing(f"the local SLS server did not start: {self._last_words()}")
        self.endpoint = ("https://" if self._tls else "") + line.removeprefix(READY).strip()

    def stop(self) -> None:
        """End the server; logs that it acknowledged stay in the directory. Stopping twice is harmless."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe:
                pipe.close()

    def connection(self, auth_version: AuthVersion = "v1") -> SlsConnection:
        """The connection for clients of the server."""
        secret, token = Secret(self._secret), Secret(self._token)
        return SlsConnection(self.endpoint, self.access_key_id, secret, token, "cn-local", auth_version)

    def _plan(self) -> Path:
        return self.directory / "faults.json"

    def _log(self) -> Path:
        return self.directory / "server.log"

    def _first_line(self) -> str:
        """The child's first line; empty if it ended or said nothing in time."""
        assert self._process is not None and self._process.stdout is not None  # noqa: S101 - Popen was given a pipe
        deadline = time.monotonic() + _START_SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            ready = selector.select(deadline - time.monotonic())
        return self._process.stdout.readline() if ready else ""

    def _last_words(self) -> str:
        lines = self._log().read_text().strip().splitlines()
        return lines[-1] if lines else f"nothing within {_START_SECONDS:.0f} s"
