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

from airflow_provider_slshudi.config.pipeline import Source
from airflow_provider_slshudi.exceptions import ConfigError, SourceUnavailable
from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.sls.credential_server import CredentialServer
from airflow_provider_slshudi.sls.credentials import EARLY, Credentials, Keeper
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.spark.keyserver import PORT, TOKEN_BYTES, Address, KeyServer, Place, listening
from airflow_provider_slshudi.system.secrets import NONE, Secret

if TYPE_CHECKING:
    from pyspark import SparkContext

Keys = Callable[["SparkContext", Source], AbstractContextManager[Place]]
"""Says where tasks are told the credentials, as long as the context is open."""
_PROPERTY = "slshudi.sls.half"
_kept: dict[bytes, tuple[SlsConnection, Keeper]] = {}
"""What this process was told last, by its token."""


@dataclass(frozen=True)
class Access:
    """Connects tasks of jobs that this thread starts with one logstore; travels to the executors."""

    project: str
    logstore: str
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
            asker = _Asked(self.credential_server, token)
            keeper = Keeper(asker)
            try:
                first = keeper.get()
            except OSError as error:
                raise SourceUnavailable(str(error), project=self.project, logstore=self.logstore) from error
            _kept.clear()
            keys = {name: getattr(first, name) for name in ("access_key_id", "access_key_secret", "security_token")}
            connection = SlsConnection(**asker.service, **keys, mask_key=asker.mask_key)
            _kept[token] = connection, keeper
        connection, keeper = _kept[token]
        return LogService(connection, self.project, self.logstore, credentials=keeper)


class _Asked:
    """Gives the credentials that a CredentialServer has, and what it knows of the service besides.

    It is told how long they last, not until when: clocks differ.
    """

    def __init__(self, address: Address, token: bytes) -> None:
        self._address, self._token = address, token
        self._last: Credentials | None = None
        self.service: dict[str, Any] = {}
        self.mask_key = NONE

    def __call__(self) -> Credentials:
        last = self._last
        good = last is not None and (last.expires is None or time.time() < last.expires - EARLY)
        # An executor asks before its credentials expire only if the service refused them.
        question = last.access_key_id if last is not None and good else ""
        answer: dict[str, Any] = json.loads(self._ask(question))
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
        credential_server = CredentialServer(SlsConnection.from_env(environ))
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
            yield Access(source.project, source.logstore, place.address, half)
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
