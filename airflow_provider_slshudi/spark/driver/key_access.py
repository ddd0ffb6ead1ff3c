"""How Spark tasks reach the log service: each Python worker asks for credentials, over TLS.

It asks the driver, or in cluster mode the task of Airflow that wants the job done (`spark.driver_endpoint`). No task of
Spark holds the key, and none holds what it needs to ask: a task's binary carries one half of the token, a local
property the other. The binary is a block, which may lie on a disk; the property goes with the message that starts a
task, and into Spark's event log. A worker asks again before the credentials that it has expire, and once when they are
refused.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.config.sources import Place as LogstorePlace
from airflow_provider_slshudi.config.sources import Source
from airflow_provider_slshudi.exceptions import ConfigError, SourceUnavailable
from airflow_provider_slshudi.sls.connection import SlsConnection, connections_of
from airflow_provider_slshudi.sls.credential_server import CredentialServer
from airflow_provider_slshudi.sls.credentials import EARLY, Credentials, Keeper
from airflow_provider_slshudi.sls.logstores import service_of
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.spark.keyserver import PORT, TOKEN_BYTES, Address, KeyServer, Place, listening
from airflow_provider_slshudi.system.secrets import NONE, Secret

if TYPE_CHECKING:
    from pyspark import SparkContext

Keys = Callable[["SparkContext", Source], AbstractContextManager[Place]]
"""Says where tasks are told the credentials, as long as the context is open."""
_PROPERTY = "slshudi.sls.half"
_kept: dict[bytes, list[tuple[SlsConnection, Keeper]]] = {}
"""The connections that this process was told last, by its token."""


@dataclass(frozen=True)
class Access:
    """Connects tasks of jobs that this thread starts with the logstores of a source; travels to the executors.

    `logstores` are `Source.places`.
    """

    logstores: tuple[LogstorePlace, ...]
    credential_server: Address
    half: bytes = field(repr=False)

    def __call__(self) -> LogService:
        """The log service, within a task.

        Raises:
            ConfigError: there are no credentials.
            SourceUnavailable: no server can be asked for them, or there are none for now.
        """
        from pyspark import TaskContext

        context = TaskContext.get()
        other = context.getLocalProperty(_PROPERTY) if context is not None else None
        if other is None:
            raise RuntimeError("the log service is reached from tasks of the thread that was granted access only")
        token = _joined(self.half, bytes.fromhex(other))
        if token not in _kept:
            count = 1 + max(number for *_, number in self.logstores)
            pairs = [self._told(token, number) for number in range(count)]
            _kept.clear()
            _kept[token] = pairs
        connections, keepers = zip(*_kept[token], strict=True)
        return service_of(self.logstores, connections, keepers=keepers)

    def _told(self, token: bytes, number: int) -> tuple[SlsConnection, Keeper]:
        """A connection as the server tells it."""
        asker = _Asked(self.credential_server, token, number)
        keeper = Keeper(asker)
        try:
            first = keeper.get()
        except OSError as error:
            project, logstore, _ = next(place for place in self.logstores if place[2] == number)
            raise SourceUnavailable(str(error), project=project, logstore=logstore) from error
        keys = {name: getattr(first, name) for name in ("access_key_id", "access_key_secret", "security_token")}
        return SlsConnection(**asker.service, **keys, mask_key=asker.mask_key), keeper


class _Asked:
    """Gives the credentials of one connection that a CredentialServer has, and what it knows of the service besides.

    It is told how long they last, not until when: clocks differ.
    """

    def __init__(self, address: Address, token: bytes, number: int) -> None:
        self._address, self._token, self._number = address, token, number
        self._last: Credentials | None = None
        self.service: dict[str, Any] = {}
        self.mask_key = NONE

    def __call__(self) -> Credentials:
        last = self._last
        good = last is not None and (last.expires is None or time.time() < last.expires - EARLY)
        # An executor asks before its credentials expire only if the service refused them.
        question = last.access_key_id if last is not None and good else ""
        answer: dict[str, Any] = json.loads(self._ask(f"{self._number} {question}"))
        if answer.get("wrong"):
            raise ConfigError(answer["wrong"], source="SLS connection", field="credentials")
        if answer.get("missing"):
            raise OSError(answer["missing"])
        self.service = answer["service"]
        seconds = answer["seconds"]
        expires = None if seconds is None else time.time() + seconds
        keys = answer["keys"]
        self.mask_key = Secret(keys["mask_key"])
        secret, token = Secret(keys["access_key_secret"]), Secret(keys["security_token"])
        self._last = Credentials(keys["access_key_id"], secret, token, expires)
        return self._last

    def _ask(self, question: str) -> bytes:
        try:
            return self._address.ask(self._token, question)
        except OSError as error:
            raise OSError(f"the port at which tasks are told credentials, {error}") from error


def served(environ: Mapping[str, str]) -> Keys:
    """Keys that this process tells itself, of the connection in `environ`.

    Raises, once they are used:
        ConfigError: `environ` has no connection, or one without credentials; or the port cannot be used.
        SourceUnavailable: there are no credentials for now.
    """

    @contextmanager
    def keys(spark: SparkContext, source: Source) -> Iterator[Place]:
        credential_server = CredentialServer(connections_of(environ))
        try:
            credential_server.first()
        except OSError as error:
            raise SourceUnavailable(str(error), project=source.project, logstore=source.logstore) from error
        server = _server(spark, credential_server)
        try:
            yield server.place
        finally:
            server.close()

    return keys


@contextmanager
def granted(spark: SparkContext, source: Source, keys: Keys) -> Iterator[Access]:
    """Gives the connection that `keys` tell to the tasks that this thread starts within the block.

    Raises: as `keys`.
    """
    with keys(spark, source) as place:
        half = secrets.token_bytes(TOKEN_BYTES)
        spark.setLocalProperty(_PROPERTY, _joined(place.token, half).hex())
        try:
            yield Access(source.places, place.address, half)
        finally:
            spark.setLocalProperty(_PROPERTY, None)  # type: ignore[arg-type]


def _server(spark: SparkContext, credential_server: CredentialServer) -> KeyServer:
    conf = spark.getConf()
    host = bind = "127.0.0.1"
    if not str(spark.master).startswith("local"):
        host = (conf.get("spark.driver.host") or host).strip("[]")
        bind = (conf.get("spark.driver.bindAddress") or host).strip("[]")
    return listening(credential_server, host, bind, conf.get(PORT) or "0")


def _joined(first: bytes, second: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(first, second, strict=True))
