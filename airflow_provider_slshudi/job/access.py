"""How Spark tasks reach the log service: the credentials travel in two halves, neither of which tells anything alone.

A task's binary carries one half; it is a block, which the driver's block port serves and which may lie on a disk. A
local property carries the other half; it goes with the message that starts a task, and into Spark's event log.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_slshudi.config.pipeline import Source
from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.sls.service import LogService

if TYPE_CHECKING:
    from pyspark import SparkContext

_PROPERTY = "slshudi.sls.half"


@dataclass(frozen=True)
class Access:
    """Connects tasks of jobs that this thread starts with one logstore; travels to the executors."""

    project: str
    logstore: str
    half: bytes = field(repr=False)

    @classmethod
    def grant(cls, spark: SparkContext, source: Source, environ: Mapping[str, str]) -> Access:
        """Gives the connection in `environ` to the tasks that this thread starts from now on.

        Raises:
            ConfigError: `environ` has no connection.
        """
        content = json.dumps(SlsConnection.from_env(environ).to_env()).encode()
        half = secrets.token_bytes(len(content))
        spark.setLocalProperty(_PROPERTY, _joined(content, half).hex())
        return cls(source.project, source.logstore, half)

    @staticmethod
    def revoke(spark: SparkContext) -> None:
        """Takes it from the tasks that this thread starts from now on."""
        spark.setLocalProperty(_PROPERTY, None)  # type: ignore[arg-type]

    def __call__(self) -> LogService:
        """The log service, within a task."""
        from pyspark import TaskContext

        context = TaskContext.get()
        other = context.getLocalProperty(_PROPERTY) if context is not None else None
        if other is None:
            raise RuntimeError("the log service is reached from tasks of the thread that was granted access only")
        content = json.loads(_joined(self.half, bytes.fromhex(other)))
        return LogService(SlsConnection.from_env(content), self.project, self.logstore)


def _joined(first: bytes, second: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(first, second, strict=True))
