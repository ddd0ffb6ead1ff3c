"""How Spark tasks reach the log service: each Python worker asks the driver once, over TLS, for the connection.

No task holds the key, and none holds what it needs to ask: a task's binary carries one half of the token, a local
property the other. The binary is a block, which may lie on a disk; the property goes with the message that starts a
task, and into Spark's event log.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_slshudi.config.pipeline import Source
from airflow_provider_slshudi.exceptions import SourceUnavailable
from airflow_provider_slshudi.job.keyserver import TOKEN_BYTES, Address, KeyServer
from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.sls.service import LogService

if TYPE_CHECKING:
    from pyspark import SparkContext

PORT = "spark.slshudi.access.port"
"""Spark's setting for the port at which a driver tells its executors the connection; any that is free by default."""
_PROPERTY = "slshudi.sls.half"
_told: dict[bytes, SlsConnection] = {}
"""What this process was told last, by its token."""


@dataclass(frozen=True)
class Access:
    """Connects tasks of jobs that this thread starts with one logstore; travels to the executors."""

    project: str
    logstore: str
    driver: Address
    half: bytes = field(repr=False)

    def __call__(self) -> LogService:
        """The log service, within a task.

        Raises:
            SourceUnavailable: the driver does not tell how to reach it.
        """
        from pyspark import TaskContext

        context = TaskContext.get()
        other = context.getLocalProperty(_PROPERTY) if context is not None else None
        if other is None:
            raise RuntimeError("the log service is reached from tasks of the thread that was granted access only")
        token = _joined(self.half, bytes.fromhex(other))
        if token not in _told:
            try:
                content = self.driver.ask(token)
            except OSError as error:
                raise SourceUnavailable(str(error), project=self.project, logstore=self.logstore) from error
            _told.clear()
            _told[token] = SlsConnection.from_env(json.loads(content))
        return LogService(_told[token], self.project, self.logstore)


@contextmanager
def granted(spark: SparkContext, source: Source, environ: Mapping[str, str]) -> Iterator[Access]:
    """Gives the connection in `environ` to the tasks that this thread starts within the block.

    Raises:
        ConfigError: `environ` has no connection.
    """
    content = json.dumps(SlsConnection.from_env(environ).to_env()).encode()
    conf = spark.getConf()
    host = (conf.get("spark.driver.host") or "127.0.0.1").strip("[]")
    bind = (conf.get("spark.driver.bindAddress") or host).strip("[]")
    server = KeyServer(content, host, bind, int(conf.get(PORT) or 0))
    half = secrets.token_bytes(TOKEN_BYTES)
    spark.setLocalProperty(_PROPERTY, _joined(server.token, half).hex())
    try:
        yield Access(source.project, source.logstore, server.address, half)
    finally:
        spark.setLocalProperty(_PROPERTY, None)  # type: ignore[arg-type]
        server.close()


def _joined(first: bytes, second: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(first, second, strict=True))
