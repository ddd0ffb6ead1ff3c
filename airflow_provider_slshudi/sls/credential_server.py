"""Tells a job's tasks the credentials that this process has; only it asks files and roles for them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence

from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.sls.credentials import Keeper

_RENEW_SECONDS = 10.0


class CredentialServer:
    """Answers tasks; the question is the number of a connection, and the id of the key with which it was refused, if
    it was.

    The answer is JSON: `service` and `keys`, the arguments of SlsConnection, and `seconds`, how long they are good
    for; or `missing`, why there are none for now; or `wrong`, why there are none at all.
    """

    def __init__(self, connections: Sequence[SlsConnection]) -> None:
        self._connections = connections
        self._keepers = [Keeper(connection.provider()) for connection in connections]
        self._renewed = [float("-inf")] * len(connections)
        self._lock = threading.Lock()

    def first(self) -> None:
        """Fetches credentials before an executor asks for them. Raises OSError and ConfigError."""
        for keeper in self._keepers:
            keeper.get()

    def __call__(self, question: str) -> bytes:
        """Answers one question."""
        number, _, refused_id = question.partition(" ")
        if number not in map(str, range(len(self._connections))):
            return json.dumps({"wrong": f"there is no connection {number!r}"}).encode()
        place = int(number)
        keeper = self._keepers[place]
        try:
            credentials = keeper.get()
            if credentials.access_key_id == refused_id and self._may_renew(place) and keeper.refused(credentials):
                credentials = keeper.get()
        except ConfigError as error:
            return json.dumps({"wrong": str(error)}).encode()
        except OSError as error:
            return json.dumps({"missing": f"no credentials can be given: {error}"}).encode()
        except Exception as error:  # its text may be any library's
            return json.dumps({"missing": f"no credentials can be given: {type(error).__name__}"}).encode()
        connection = self._connections[place]
        service = {
            "endpoint": connection.endpoint,
            "region": connection.region,
            "auth_version": connection.auth_version,
            "mask_name": connection.mask_name,
        }
        keys = {
            "access_key_id": credentials.access_key_id,
            "access_key_secret": credentials.access_key_secret.reveal(),
            "security_token": credentials.security_token.reveal(),
            "mask_key": connection.mask_key.reveal(),
        }
        seconds = None if credentials.expires is None else credentials.expires - time.time()
        return json.dumps({"service": service, "keys": keys, "seconds": seconds}).encode()

    def _may_renew(self, place: int) -> bool:
        """Whether a refusal may lead to the provider again: many tasks are refused at once."""
        with self._lock:
            now = time.monotonic()
            may = now - self._renewed[place] > _RENEW_SECONDS
            if may:
                self._renewed[place] = now
            return may
