"""`python -m tests.fuzz.requests --count 200000`: mutated requests to the local server.

Two kinds, in turn. Signed: a valid request with its method, path, query, headers or body changed and then signed as a
client would, so that it gets past the signature. Raw: the bytes of a signed request, changed. The server must answer
or close within the time limit, must not say that it failed itself, must stay the same process, and must not grow.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import socket
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

import lz4.block
import psutil
import zstd
from aliyun.log.auth import AuthBase, make_auth
from aliyun.log.credentials import StaticCredentialsProvider

from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.sls import cursors
from airflow_provider_slshudi.sls.connection import SlsConnection
from tests.local.sdk import PROJECT, by_ip, log_group, make_logstore

LOGSTORE, GROUP = "fuzzed", "readers"
TIME_LIMIT = 20.0
"""Seconds that an answer may take."""

MOST_GROWTH = 256 << 20
"""Bytes of memory that the server may gain: bodies of a few requests, and the index of what was put."""

# Values that parsers stumble over.
_ODD: tuple[str, ...] = (
    "",
    "-1",
    "0",
    "²",
    "9" * 19,
    "9" * 5000,
    "1e9",
    "NaN",
    "null",
    "\x00",
    "%00",
    "../..",
    "ü" * 50,
    "a=b&c",
    cursors.text(2**63 - 1),
    "begin",
    "end",
    "heartbeat",
    "checkpoint",
    "split",
    "merge",
    "f" * 32,
)
_ODD_JSON: tuple[object, ...] = (None, True, -1, 0, 2**70, 1.5, "", "x" * 3000, [], {}, [[]], {"a": {}}, "MTY=", [0, 1])


@dataclass(slots=True)
class Request:
    """A request before it is signed."""

    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(slots=True)
class Outcome:
    """What came of all requests."""

    seed: int
    count: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    grown: int = 0
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the server took it all."""
        return not self.failures and self.grown < MOST_GROWTH and self.count > 0

    def __str__(self) -> str:
        statuses = ", ".join(f"{name}: {count}" for name, count in sorted(self.statuses.items()))
        return (
            f"request fuzzing: {self.count} mutated requests in {self.seconds:.0f} s: {len(self.failures)} crashes, "
            f"hangs or internal errors, {self.grown / 2**20:+.0f} MiB of memory (answers {statuses}; seed {self.seed})"
        )


def seeds(cursor: str) -> list[Request]:
    """A valid request of every operation that does not take the logstore away."""
    group = log_group(b"value", b"other" * 20).SerializeToString()
    shards, groups = f"/logstores/{LOGSTORE}/shards", f"/logstores/{LOGSTORE}/consumergroups"
    of_json = {"Content-Type": "application/json"}

    def put(path: str, kind: str, body: bytes, **query: str) -> Request:
        kinds = {"x-log-compresstype": kind} if kind else {}
        headers = {"Content-Type": "application/x-protobuf", "x-log-bodyrawsize": str(len(group)), **kinds}
        return Request("POST", path, query, headers, body)

    def told(method: str, path: str, content: object, **query: str) -> Request:
        return Request(method, path, query, of_json, json.dumps(content).encode())

    pull = {"type": "log", "cursor": cursor, "count": "10", "end_cursor": cursor}
    logstore = {"logstoreName": "another", "ttl": 1, "shardCount": 1, "autoSplit": True, "maxSplitShard": 3}
    consumer = {"type": "checkpoint", "consumer": "me", "forceSuccess": "True"}
    return [
        Request("GET", "/", {"offset": "0", "size": "10", "projectName": "demo"}),
        Request("GET", "/"),
        told("POST", "/", {"projectName": "another-project", "description": "d", "resourceGroupId": ""}),
        told("PUT", "/", {"description": "d"}),
        Request("GET", "/logstores", {"offset": "0", "size": "10", "logstoreName": "f"}),
        told("POST", "/logstores", logstore),
        told("PUT", f"/logstores/{LOGSTORE}", logstore),
        Request("GET", f"/logstores/{LOGSTORE}"),
        Request("DELETE", "/logstores/another"),
        Request("GET", shards),
        Request("GET", f"{shards}/0", {"type": "cursor", "from": "1700000000"}),
        Request("GET", f"{shards}/0", {"type": "cursor_time", "cursor": cursor}),
        *(Request("GET", f"{shards}/0", pull, {"Accept-Encoding": kind}) for kind in ("lz4", "zstd", "gzip", "")),
        put(f"{shards}/lb", "lz4", lz4.block.compress(group, store_size=False)),
        put(f"{shards}/lb", "zstd", zstd.compress(group)),
        put(f"{shards}/lb", "deflate", zlib.compress(group)),
        put(f"{shards}/route", "", group, key="7" * 32),
        Request("POST", f"{shards}/0", {"action": "split", "key": "7" * 32}),
        Request("POST", f"{shards}/1", {"action": "merge"}),
        Request("DELETE", f"{shards}/9"),
        told("POST", groups, {"consumerGroup": "another", "timeout": 10, "order": True}),
        Request("GET", groups),
        told("PUT", f"{groups}/{GROUP}", {"timeout": 20, "order": False}),
        told("POST", f"{groups}/{GROUP}", [], type="heartbeat", consumer="me"),
        told("POST", f"{groups}/{GROUP}", {"shard": 0, "checkpoint": cursor}, **consumer),
        Request("GET", f"{groups}/{GROUP}", {"shard": "0"}),
        Request("DELETE", f"{groups}/another"),
    ]


def changed(rng: random.Random, data: bytes) -> bytes:
    """`data` with some bytes changed, removed, repeated or put in."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(out) + 1)
        what = rng.randrange(5)
        if what == 0 and out:
            out[at % len(out)] = rng.randrange(256)
        elif what == 1 and out:
            out[at % len(out)] ^= 1 << rng.randrange(8)
        elif what == 2:
            del out[at : at + rng.choice((1, 4, 50))]
        elif what == 3:
            out[at:at] = rng.randbytes(rng.choice((1, 3, 20)))
        else:
            out[at:at] = out[at : at + rng.choice((1, 10, 200))] * rng.choice((1, 2, 30))
    return bytes(out)


def mutated(rng: random.Random, seed: Request) -> Request:
    """Another request, like `seed` but for one or two places."""
    request = Request(seed.method, seed.path, dict(seed.query), dict(seed.headers), seed.body)
    changes: tuple[Callable[[random.Random, Request], None], ...] = (
        _query,
        _query,
        _body,
        _body,
        _path,
        _head,
        _method,
    )
    for _ in range(rng.choice((1, 1, 2))):
        rng.choice(changes)(rng, request)
    return request


def _query(rng: random.Random, request: Request) -> None:
    known = ("type", "action", "cursor", "end_cursor", "count", "from", "key", "offset", "size", "shard", "query")
    name = rng.choice(sorted(request.query) or known) if rng.random() < 0.7 else rng.choice(known)
    if rng.random() < 0.2:
        request.query.pop(name, None)
    else:
        request.query[name] = rng.choice(_ODD) if rng.random() < 0.7 else str(rng.randrange(-5, 2**40))


def _body(rng: random.Random, request: Request) -> None:
    if request.headers.get("Content-Type") == "application/json" and rng.random() < 0.7:
        content = _parsed(request.body) if rng.random() < 0.9 else rng.choice(_ODD_JSON)
        if isinstance(content, dict) and content:
            content = {**content, rng.choice(sorted(content)): rng.choice(_ODD_JSON)}
        elif isinstance(content, list):
            content = [*content, rng.choice(_ODD_JSON)]
        request.body = json.dumps(content).encode()
    elif rng.random() < 0.02:
        request.body = rng.choice((b"[" * 100_000, b'{"a":' * 50_000, zstd.compress(bytes(1 << 26))))
    else:
        request.body = changed(rng, request.body)


def _parsed(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):  # an earlier change
        return None


def _path(rng: random.Random, request: Request) -> None:
    parts = request.path.split("/")
    # Never the logstore itself, so that the others still have something to work on.
    if request.method == "DELETE" and len(parts) == 3:
        return
    parts[rng.randrange(len(parts))] = rng.choice(("0", "-1", "99", "9" * 30, "lb", "route", "²", "x" * 2000, "..", ""))
    request.path = "/" + "/".join(parts).lstrip("/")


def _head(rng: random.Random, request: Request) -> None:
    name = rng.choice(
        ("x-log-bodyrawsize", "x-log-compresstype", "Content-Type", "Accept-Encoding", "x-log-apiversion")
    )
    values = ("", "-1", "0", "1", "10485760", "99999999999999999999", "lz4", "zstd", "gzip", "a,b;q=1", "x" * 500)
    request.headers[name] = rng.choice(values)


def _method(rng: random.Random, request: Request) -> None:
    if request.path.count("/") > 2:
        request.method = rng.choice(("GET", "POST", "PUT"))


class Fuzzer:
    """Sends mutated requests to a server and watches it."""

    def __init__(self, server: LocalSls, seed: int) -> None:
        self._server, self.outcome, self._rng = server, Outcome(seed), random.Random(seed)
        connection = server.connection()
        self._host, _, port = server.endpoint.rpartition(":")
        self._port = int(port)
        self._process = psutil.Process(server.pid)
        self._auths = [_auth(connection, version) for version in ("v1", "v4")]
        client = by_ip(connection)
        make_logstore(client, LOGSTORE)
        client.create_consumer_group(PROJECT, LOGSTORE, GROUP, 10)
        for _ in range(20):
            client.put_log_raw(PROJECT, LOGSTORE, log_group(b"x" * 1000))
        self._seeds = seeds(client.get_begin_cursor(PROJECT, LOGSTORE, 0).get_cursor())
        self._kept = http.client.HTTPConnection(self._host, self._port, timeout=TIME_LIMIT)

    def run(self, count: int) -> Outcome:
        """Send `count` requests."""
        started, outcome = time.monotonic(), self.outcome
        for _ in range(200):  # what is loaded at first use is no growth
            self._signed(self._rng.choice(self._seeds))
        before = self._process.memory_info().rss
        for number in range(count):
            seed = self._rng.choice(self._seeds)
            if number % 2:
                self._raw(changed(self._rng, self._wire(seed)))
            else:
                self._signed(mutated(self._rng, seed))
            outcome.count += 1
            if number % 1000 == 999:
                outcome.grown = max(outcome.grown, self._process.memory_info().rss - before)
            if len(outcome.failures) > 10:
                break
        outcome.grown = max(outcome.grown, self._process.memory_info().rss - before)
        by_ip(self._server.connection()).list_project()  # it is still the same process, and it answers
        outcome.seconds = time.monotonic() - started
        return outcome

    def _sign(self, request: Request) -> dict[str, str]:
        headers = {"Host": f"{PROJECT}.{self._host}", "x-log-apiversion": "0.6.0", **request.headers}
        self._rng.choice(self._auths).sign_request(
            request.method, request.path, dict(request.query), headers, request.body
        )
        headers["Content-Length"] = str(len(request.body))
        return headers

    def _target(self, request: Request) -> str:
        path = "".join(c if c.isascii() and c.isprintable() and c not in " ?#%" else "%20" for c in request.path)
        return path + (f"?{urlencode(request.query)}" if request.query else "")

    def _signed(self, request: Request) -> None:
        headers = {name: value.encode("latin-1", "replace") for name, value in self._sign(request).items()}
        try:
            self._kept.putrequest(request.method, self._target(request), skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                self._kept.putheader(name, value)
            self._kept.endheaders(request.body)
            answer = self._kept.getresponse()
            self._judge(answer.status, answer.read(), repr(request)[:500])
        except (http.client.HTTPException, ConnectionError):
            self.outcome.statuses["closed"] += 1
            self._kept.close()
        except TimeoutError:
            self.outcome.failures.append(f"no answer in {TIME_LIMIT} s: {request!r}"[:500])
            self._kept.close()

    def _wire(self, request: Request) -> bytes:
        head = "".join(f"{name}: {value}\r\n" for name, value in self._sign(request).items())
        line = f"{request.method} {self._target(request)} HTTP/1.1\r\n"
        return f"{line}{head}\r\n".encode("latin-1", "replace") + request.body

    def _raw(self, data: bytes) -> None:
        got = b""
        with socket.create_connection((self._host, self._port), TIME_LIMIT) as way:
            try:
                way.sendall(data)
                # A server that waits for more gets the end; one that answers is heard first.
                way.settimeout(0.002)
                try:
                    got = way.recv(65536)
                except TimeoutError:
                    way.settimeout(TIME_LIMIT)
                    way.shutdown(socket.SHUT_WR)
                    while part := way.recv(65536):
                        got += part
            except ConnectionError:
                pass
            except TimeoutError:
                self.outcome.failures.append(f"no answer and no end in {TIME_LIMIT} s: {data!r}"[:500])
                return
        status = got.split(b" ", 2)[1:2]
        if status and status[0].isdigit():
            self._judge(int(status[0]), got.partition(b"\r\n\r\n")[2], repr(data)[:500])
        else:
            self.outcome.statuses["closed"] += 1

    def _judge(self, status: int, body: bytes, request: str) -> None:
        self.outcome.statuses[str(status)] += 1
        if status >= 500:
            self.outcome.failures.append(f"{status} {body[:200]!r} to {request}")


def _auth(connection: SlsConnection, version: str) -> AuthBase:
    provider = StaticCredentialsProvider(connection.access_key_id, connection.access_key_secret.reveal())
    return make_auth(provider, version, connection.region)


def fuzz(directory: Path, count: int, seed: int) -> Outcome:
    """Send `count` mutated requests to a server over `directory`."""
    with LocalSls(directory) as server:
        return Fuzzer(server, seed).run(count)


def main() -> int:
    """Run it; the exit code says whether all was well."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.requests", description=__doc__)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        outcome = fuzz(Path(directory), arguments.count, arguments.seed)
    for failure in outcome.failures:
        print(failure)
    print(outcome)
    return 0 if outcome.ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
