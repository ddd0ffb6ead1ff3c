"""The process that puts the demo's logs, and its progress."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from types import TracebackType

from airflow_provider_slshudi.cli.demo.put import sdk_client
from airflow_provider_slshudi.config.sources import Source
from airflow_provider_slshudi.exceptions import SlsHudiError
from airflow_provider_slshudi.sls.connection import SlsConnection


class Putter:
    """Makes the logstore, then puts `count` logs into it, in a process of its own and in `parts`.

    It puts the first part at once, and each further one when `allow` asks for it.
    """

    def __init__(self, connection: SlsConnection, source: Source, shards: int, count: int, parts: int) -> None:
        self.count, self.acknowledged = count, 0
        self._connection, self._source, self._shards = connection, source, shards
        self._parts, self._allowed = parts, 0

    def __enter__(self) -> Putter:
        client = sdk_client(self._connection)
        client.create_project(self._source.project, "demo")
        client.create_logstore(self._source.project, self._source.logstore, ttl=7, shard_count=self._shards)
        command = [sys.executable, "-m", "airflow_provider_slshudi.cli.demo.put"]
        command += [self._source.project, self._source.logstore]
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **self._connection.to_env()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._follower = threading.Thread(target=self._follow, daemon=True)
        self._follower.start()
        self.allow(1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._follower.join()

    def allow(self, parts: int) -> None:
        """Lets the process put the first `parts` of all parts."""
        if parts > self._allowed and self._allowed < self._parts and self._process.stdin:
            self._allowed = min(parts, self._parts)
            self._process.stdin.write(f"{self.count * self._allowed // self._parts}\n")
            self._process.stdin.flush()

    @property
    def done(self) -> bool:
        """Whether all logs are acknowledged.

        Raises:
            SlsHudiError: the process failed.
        """
        if self._process.poll() not in (None, 0):
            raise SlsHudiError(
                f"the process that puts logs ended: {(self._process.stderr or sys.stdin).read()[-2000:]}"
            )
        return self.acknowledged >= self.count

    def _follow(self) -> None:
        for line in self._process.stdout or ():
            self.acknowledged = int(line)
