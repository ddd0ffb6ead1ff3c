"""How Spark tasks reach the log service: each Python worker asks the driver for credentials, over TLS.

No task holds the key, and none holds what it needs to ask: a task's binary carries one half of the token, a local
property the other. The binary is a block, which may lie on a disk; the property goes with the message that starts a
task, and into Spark's event log. Only the driver asks files and roles for credentials; a worker asks it again before
those that it has expire, and once when the service refuses them.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.config.pipeline import Source
from airflow_provider_slshudi.exceptions import ConfigError, SourceUnavailable
from airflow_provider_slshudi.job.keyserver import TOKEN_BYTES, Address, KeyServer
from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.sls.credentials import Credentials, Keeper
from airflow_provider_slshudi.sls.service import LogService

if TYPE_CHECKING:
    from pyspark import SparkContext

PORT = "spark.slshudi.access.port"
"""Spark's setting for the port at which a driver tells its executors the credentials; any that is free by default."""
_PROPERTY = "slshudi.sls.half"
_kept: dict[bytes, tuple[SlsConnection, Keeper]] = {}
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
            ConfigError: the driver has no credentials.
            SourceUnavailable: the driver cannot be asked, or gets none for now.
        """
        from pyspark import TaskContext

        context = TaskContext.get()
        other = context.getLocalProperty(_PROPERTY) if context is not None else None
        if other is None:
            raise RuntimeError("the log service is reached from tasks of the thread that was granted access only")
        token = _joined(self.half, bytes.fromhex(other))
        if token not in _kept:
            driver = _Driver(self.driver, token)
            keeper = Keeper(driver)
            try:
                first = keeper.get()
            except OSError as error:
                raise SourceUnavailable(str(error), project=self.project, logstore=self.logstore) from error
            _kept.clear()
            keys = {name: getattr(first, name) for name in ("access_key_id", "access_key_secret", "security_token")}
            _kept[token] = SlsConnection(**driver.service, **keys), keeper
        connection, keeper = _kept[token]
        return LogService(connection, self.project, self.logstore, credentials=keeper)


class _Driver:
    """Gives the credentials that the driver has, and what it knows of the service besides."""

    def __init__(self, address: Address, token: bytes) -> None:
        self._address, self._token, self._last = address, token, ""
        self.service: dict[str, Any] = {}

    def __call__(self) -> Credentials:
        told: dict[str, Any] = json.loads(self._address.ask(self._token, self._last))
        if told.get("wrong"):
            raise ConfigError(told["wrong"], source="SLS connection", field="credentials")
        if told.get("missing"):
            raise OSError(told["missing"])
        self.service = told["service"]
        given = Credentials(**told["credentials"])
        self._last = given.access_key_id
        return given


class _Teller:
    """Answers executors; the question is the id of the key that the asker has, and that is no good to it any more."""

    def __init__(self, connection: SlsConnection) -> None:
        self._connection, self._keeper = connection, Keeper(connection.provider())

    def __call__(self, question: str) -> bytes:
        try:
            given = self._keeper.get()
            if given.access_key_id == question and self._keeper.refused(given):
                given = self._keeper.get()
        except ConfigError as error:
            return json.dumps({"wrong": str(error)}).encode()
        except OSError as error:
            return json.dumps({"missing": f"the driver gets no credentials: {error}"}).encode()
        known = self._connection
        service = {"endpoint": known.endpoint, "region": known.region, "auth_version": known.auth_version}
        return json.dumps({"service": service, "credentials": asdict(given)}).encode()


@contextmanager
def granted(spark: SparkContext, source: Source, environ: Mapping[str, str]) -> Iterator[Access]:
    """Gives the connection in `environ` to the tasks that this thread starts within the block.

    Raises:
        ConfigError: `environ` has no connection.
    """
    teller, conf = _Teller(SlsConnection.from_env(environ)), spark.getConf()
    host = (conf.get("spark.driver.host") or "127.0.0.1").strip("[]")
    bind = (conf.get("spark.driver.bindAddress") or host).strip("[]")
    server = KeyServer(teller, host, bind, int(conf.get(PORT) or 0))
    half = secrets.token_bytes(TOKEN_BYTES)
    spark.setLocalProperty(_PROPERTY, _joined(server.token, half).hex())
    try:
        yield Access(source.project, source.logstore, server.address, half)
    finally:
        spark.setLocalProperty(_PROPERTY, None)  # type: ignore[arg-type]
        server.close()


def _joined(first: bytes, second: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(first, second, strict=True))
