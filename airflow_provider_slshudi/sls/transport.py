"""Signed requests to the log service, one at a time or to all shards at once."""

from __future__ import annotations

import ipaddress
import ssl
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import quote, urlencode

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, ReadTimeoutError

from airflow_provider_slshudi import __version__
from airflow_provider_slshudi.sls.connection import SlsConnection, split_endpoint
from airflow_provider_slshudi.sls.credentials import Credentials, pool
from airflow_provider_slshudi.sls.faults import UNREACHABLE
from airflow_provider_slshudi.sls.signing import sign

TIMEOUT = 10.0
"""Seconds to wait for a connection, and for the next bytes of an answer."""
LONGEST = 60.0
"""Seconds that a whole answer may take, so that one that trickles in does not hold a task for ever."""
LARGEST = 256 * 2**20
"""The most bytes of an answer that are taken into memory, sent or decompressed; pulls have some 10 MB."""
CONNECTIONS = 16
"""The most connections that stay open: few against the service's limits, but enough not to wait for its latency shard
by shard. They are made as they are needed; a task that reads needs two."""
_PIECE = 256 * 1024
_API_VERSION = "0.6.0"


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer; the names of `headers` are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytearray = field(repr=False)


class NoAnswer(Exception):
    """No whole answer came back. Attribute: code, the kind of fault, a key of `faults.RULES`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Transport:
    """The way to one project; `requests` counts what was sent on it, answered or not."""

    def __init__(self, connection: SlsConnection, project: str) -> None:
        self._connection = connection
        scheme, host, port = split_endpoint(connection.endpoint)
        self._host = f"{project}.{host}"
        # No name server knows `project.IP`: there the project stands in the Host header alone.
        address = host if _is_ip(host) else self._host
        self._base = f"{scheme}://{address}:{port or (443 if scheme == 'https' else 80)}"
        self._pool = pool(scheme, address, CONNECTIONS)
        self.requests = 0
        self._counting = threading.Lock()

    def get(self, path: str, query: Mapping[str, str], headers: Mapping[str, str], credentials: Credentials) -> Answer:
        """The answer to a signed GET, of any status. Raises NoAnswer.

        Args:
            path: of the request, without host and query.
            query: its parameters.
            headers: those without a signature.
            credentials: to sign with.
        """
        with self._counting:
            self.requests += 1
        common = {
            "Host": self._host,
            "User-Agent": f"slshudi/{__version__}",
            "x-log-apiversion": _API_VERSION,
            "x-log-bodyrawsize": "0",
        }
        signed = sign(self._connection, credentials, path, query, {**common, **headers}, time.time())
        url = self._base + quote(path) + (f"?{urlencode(query)}" if query else "")
        try:
            return self._get(url, signed)
        except ReadTimeoutError as error:
            raise NoAnswer("ReadTimeout", f"nothing came for {TIMEOUT:.0f} s") from error
        except (HTTPError, OSError) as error:
            if _holds(error, NewConnectionError):  # refused, or no such host, or no such proxy
                raise NoAnswer(UNREACHABLE, str(error)) from error
            if isinstance(error, ConnectTimeoutError):
                raise NoAnswer("ConnectTimeout", f"no connection within {TIMEOUT:.0f} s") from error
            if _holds(error, ssl.SSLCertVerificationError):
                raise NoAnswer("CertificateNotTrusted", str(error)) from error
            raise NoAnswer("ConnectionFault", str(error)) from error

    def _get(self, url: str, headers: Mapping[str, str]) -> Answer:
        deadline = time.monotonic() + LONGEST
        answer = self._pool.request(
            "GET",
            url,
            headers=headers,
            timeout=TIMEOUT,
            retries=False,
            redirect=False,
            preload_content=False,
            decode_content=False,
        )
        whole = False
        try:
            body = _read(answer, deadline)
            whole = True
        finally:
            # A connection with the rest of an answer in it must not serve the next request.
            answer.release_conn() if whole else answer.close()
        return Answer(answer.status, {name.lower(): value for name, value in answer.headers.items()}, body)


def _read(answer: urllib3.BaseHTTPResponse, deadline: float) -> bytearray:
    announced = answer.headers.get("content-length", "")
    size = int(announced) if announced.isascii() and announced.isdigit() else None
    if size is not None and size > LARGEST:
        raise NoAnswer("AnswerTooLarge", f"the answer has {size} bytes, more than {LARGEST}")
    body = bytearray()
    while piece := answer.read1(_PIECE, decode_content=False):
        body += piece
        if len(body) > LARGEST:
            raise NoAnswer("AnswerTooLarge", f"the answer has more than {LARGEST} bytes")
        if time.monotonic() > deadline:
            raise NoAnswer("AnswerTooSlow", f"the answer was not whole after {LONGEST:.0f} s")
    if size is not None and len(body) != size:
        raise NoAnswer("AnswerCut", f"the answer ended after {len(body)} of {size} bytes")
    return body


def _holds(error: BaseException | None, kind: type[BaseException]) -> bool:
    """Whether an error is of a kind, or comes of such a one."""
    while error is not None:
        if isinstance(error, kind):
            return True
        error = error.__cause__ or error.__context__
    return False


def _is_ip(host: str) -> bool:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)
_ANSWERS_AT_ONCE = 8


def ask_each(ask: Callable[[int], T], shards: Iterable[int]) -> dict[int, T]:
    """Calls `ask` for every shard and returns the answers by shard; asks up to `CONNECTIONS` shards at once.

    Raises the first error as it comes, with its shard in it, and asks no further shards after that.
    """
    shard_ids = list(shards)
    if len(shard_ids) < 2:
        return {shard: ask(shard) for shard in shard_ids}
    executor = ThreadPoolExecutor(min(CONNECTIONS, len(shard_ids)), thread_name_prefix="sls-ask")
    try:
        futures = {executor.submit(ask, shard): shard for shard in shard_ids}
        return {futures[answer]: answer.result() for answer in as_completed(futures)}
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


def answers(ask: Callable[[Key], T], keys: Sequence[Key], seconds: float) -> dict[Key, T]:
    """What `ask` gives for each key, some asked at a time; without those that have not answered after `seconds`.

    Where those that are asked hang, others get their turn all the same, in half of that time. The threads are daemons,
    for which no process waits at its end.
    """
    replies, slots = dict[Key, T](), threading.Semaphore(_ANSWERS_AT_ONCE)
    until, turn = time.monotonic() + seconds, seconds / 2 / max(1, len(keys))

    def run(key: Key) -> None:
        try:
            replies[key] = ask(key)
        finally:
            slots.release()

    threads = []
    for key in keys:
        # Without a free slot there is one more at a time from now on.
        slots.acquire(timeout=turn)
        threads.append(threading.Thread(target=run, args=(key,), name=f"slshudi-ask-{key}", daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return dict(replies)
