"""How Spark tasks reach the log service: each Python worker asks the driver for credentials, over TLS.

No task holds the key, and none holds what it needs to ask: a task's binary carries one half of the token, a local
property the other. The binary is a block, which may lie on a disk; the property goes with the message that starts a
task, and into Spark's event log. Only the driver asks files and roles for credentials; a worker asks it again before
those that it has expire, and once when the service refuses them.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.config.pipeline import Source
from airflow_provider_slshudi.exceptions import ConfigError, SourceUnavailable
from airflow_provider_slshudi.job.keyserver import TOKEN_BYTES, Address, KeyServer
from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.sls.credentials import EARLY, Credentials, Keeper
from airflow_provider_slshudi.sls.service import LogService

if TYPE_CHECKING:
    from pyspark import SparkContext

PORT = "spark.slshudi.access.port"
"""Spark's setting for the port at which a driver tells its executors the credentials; any that is free by default."""
_PROPERTY = "slshudi.sls.half"
_RENEW_SECONDS = 10.0
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
    """Gives the credentials that the driver has, and what it knows of the service besides.

    The driver tells how long they last, not until when: clocks differ.
    """

    def __init__(self, address: Address, token: bytes) -> None:
        self._address, self._token = address, token
        self._last: Credentials | None = None
        self.service: dict[str, Any] = {}

    def __call__(self) -> Credentials:
        last = self._last
        good = last is not None and (last.expires is None or time.time() < last.expires - EARLY)
        # Whoever asks although those that it has are good for longer was refused with them.
        question = last.access_key_id if last is not None and good else ""
        told: dict[str, Any] = json.loads(self._address.ask(self._token, question))
        if told.get("wrong"):
            raise ConfigError(told["wrong"], source="SLS connection", field="credentials")
        if told.get("missing"):
            raise OSError(told["missing"])
        self.service = told["service"]
        seconds = told["seconds"]
        expires = None if seconds is None else time.time() + seconds
        self._last = Credentials(**told["keys"], expires=expires)
        return self._last


class _Teller:
    """Answers executors; the question is the id of the key with which the asker was refused, or empty."""

    def __init__(self, connection: SlsConnection) -> None:
        self._connection, self._keeper = connection, Keeper(connection.provider())
        self._renewed = float("-inf")
        self._lock = threading.Lock()

    def first(self) -> None:
        """Fetches credentials before anybody asks for them. Raises OSError and ConfigError."""
        self._keeper.get()

    def __call__(self, question: str) -> bytes:
        try:
            given = self._keeper.get()
            if given.access_key_id == question and self._may_renew() and self._keeper.refused(given):
                given = self._keeper.get()
        except ConfigError as error:
            return json.dumps({"wrong": str(error)}).encode()
        except OSError as error:
            return json.dumps({"missing": f"the driver gets no credentials: {error}"}).encode()
        except Exception as error:  # its text may be anybody's
            return json.dumps({"missing": f"the driver gets no credentials: {type(error).__name__}"}).encode()
        known = self._connection
        service = {"endpoint": known.endpoint, "region": known.region, "auth_version": known.auth_version}
        keys = {name: getattr(given, name) for name in ("access_key_id", "access_key_secret", "security_token")}
        seconds = None if given.expires is None else given.expires - time.time()
        return json.dumps({"service": service, "keys": keys, "seconds": seconds}).encode()

    def _may_renew(self) -> bool:
        """Whether a refusal may lead to the provider again: many workers are refused at once."""
        with self._lock:
            now = time.monotonic()
            may = now - self._renewed > _RENEW_SECONDS
            if may:
                self._renewed = now
            return may


@contextmanager
def granted(spark: SparkContext, source: Source, environ: Mapping[str, str]) -> Iterator[Access]:
    """Gives the connection in `environ` to the tasks that this thread starts within the block.

    Raises:
        ConfigError: `environ` has no connection, or one without credentials; or the port cannot be used.
        SourceUnavailable: there are no credentials for now.
    """
    teller = _Teller(SlsConnection.from_env(environ))
    try:
        teller.first()
    except OSError as error:
        raise SourceUnavailable(str(error), project=source.project, logstore=source.logstore) from error
    server = _server(spark, teller)
    half = secrets.token_bytes(TOKEN_BYTES)
    spark.setLocalProperty(_PROPERTY, _joined(server.token, half).hex())
    try:
        yield Access(source.project, source.logstore, server.address, half)
    finally:
        spark.setLocalProperty(_PROPERTY, None)  # type: ignore[arg-type]
        server.close()


def _server(spark: SparkContext, teller: _Teller) -> KeyServer:
    conf = spark.getConf()
    host = bind = "127.0.0.1"
    if not str(spark.master).startswith("local"):
        host = (conf.get("spark.driver.host") or host).strip("[]")
        bind = (conf.get("spark.driver.bindAddress") or host).strip("[]")
    wanted = conf.get(PORT) or "0"
    try:
        return KeyServer(teller, host, bind, int(wanted))
    except (OSError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"the driver cannot listen at {bind}, port {wanted} or one of the next, to give credentials to executors: "
            f"{error}",
            source="spark.conf",
            field=PORT,
            value=wanted,
        ) from error


def _joined(first: bytes, second: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(first, second, strict=True))
