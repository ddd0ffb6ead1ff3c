"""A log service that replays answers made and compressed beforehand, so that it takes little of the machine it shares.

It knows one logstore, whatever its name, of `SHARDS` shards. Its log groups are ad events of a pool that no two of them
share, repeated once a range is longer than the pool; where its shards end are numbers that the benchmark moves on.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import lz4.block
from aliyun.log.log_logs_raw_pb2 import LogGroupListRaw

from airflow_provider_slshudi.cli.demo.put import ad_events
from airflow_provider_slshudi.sls import cursors
from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.system.secrets import Secret

SHARDS = 4
GROUPS_A_PULL = 10
LOGS_A_GROUP = 1000
POOL_PULLS = 24
"""About 150 MB: more than what one row group of a file holds, so nothing in a file repeats that does not in reality."""


@dataclass(frozen=True)
class Replay:
    """A server that runs: how to reach it, its process, raw bytes of a log group on average, each shard's end."""

    connection: SlsConnection
    process: int
    group_bytes: float
    ends: Any

    def grow(self, raw_bytes: float, hot: float = 1 / SHARDS) -> list[list[int]]:
        """Adds about `raw_bytes` of logs, `hot` of them to the first shard; gives the new [shard, begin, end]."""
        shares = [hot, *[(1 - hot) / (SHARDS - 1)] * (SHARDS - 1)]
        begins = list(self.ends)
        for shard, share in enumerate(shares):
            self.ends[shard] += max(1, round(raw_bytes * share / self.group_bytes))
        return [[shard, begin, self.ends[shard]] for shard, begin in enumerate(begins)]

    def empty(self) -> None:
        """Takes all logs away."""
        self.ends[:] = [0] * SHARDS


@contextmanager
def replay(pulls: int = POOL_PULLS) -> Iterator[Replay]:
    """Runs the server, with a pool of so many answers, as a process of its own."""
    here, there = multiprocessing.Pipe()
    ends = multiprocessing.Array("q", SHARDS)
    server = multiprocessing.Process(target=_serve, args=(there, pulls, ends), daemon=True)
    server.start()
    try:
        port, group_bytes = here.recv()
        yield Replay(SlsConnection(f"127.0.0.1:{port}", "id", Secret("key")), server.pid or 0, group_bytes, ends)
    finally:
        server.terminate()
        server.join()


def _serve(ready: Any, pulls: int, ends: Any) -> None:
    events = ad_events(1, 1_700_000_000_000)
    pool = [[_group(events) for _ in range(GROUPS_A_PULL)] for _ in range(pulls)]
    packed = [_packed(b"".join(groups)) for groups in pool]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            asked = {key: values[0] for key, values in parse_qs(parts.query).items()}
            shard = parts.path.rpartition("/shards/")[2]
            if asked.get("type") == "log":
                self._pull(int(shard), cursors.parse(asked["cursor"]), cursors.parse(asked["end_cursor"]))
            elif asked.get("type") == "cursor":
                cursor = 0 if asked["from"] == "begin" else ends[int(shard)]
                self._answer(json.dumps({"cursor": cursors.text(cursor)}).encode(), {})
            elif asked.get("type") == "cursor_time":
                self._answer(json.dumps({"cursor_time": int(time.time())}).encode(), {})
            else:
                self._answer(json.dumps([_shard(number) for number in range(SHARDS)]).encode(), {})

        def _pull(self, shard: int, begin: int, last: int) -> None:
            number, first = divmod(begin, GROUPS_A_PULL)
            # Shards begin at different places of the pool.
            chosen = (number + shard * pulls // SHARDS) % pulls
            stop = min(first + last - begin, GROUPS_A_PULL)
            groups = pool[chosen][first:stop]
            whole = len(groups) == GROUPS_A_PULL
            headers = {
                "x-log-count": len(groups),
                "x-log-bodyrawsize": sum(map(len, groups)),
                "x-log-cursor": cursors.text(begin + len(groups)),
                "x-log-compresstype": "lz4",
            }
            self._answer(packed[chosen] if whole else _packed(b"".join(groups)), headers)

        def _answer(self, body: bytes, headers: dict[str, Any]) -> None:
            self.send_response(200)
            for key, value in {**headers, "content-length": len(body), "x-log-requestid": "A"}.items():
                self.send_header(key, str(value))
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        size = sum(len(group) for groups in pool for group in groups)
        ready.send((server.server_port, size / pulls / GROUPS_A_PULL))
        server.serve_forever()


def _group(events: Iterator[list[tuple[str, str]]]) -> bytes:
    """One log group as a LogGroupList of its own; several of them, one after the other, are a LogGroupList too."""
    listed = LogGroupListRaw()
    group = listed.LogGroups.add(Topic="ad_events", Source="10.0.0.1")
    for pairs in itertools.islice(events, LOGS_A_GROUP):
        log = group.Logs.add(Time=int(pairs[1][1]) // 1000)
        for key, value in pairs:
            log.Contents.add(Key=key, Value=value.encode())
    return bytes(listed.SerializeToString())


def _packed(body: bytes) -> bytes:
    return bytes(lz4.block.compress(body, store_size=False))


def _shard(number: int) -> dict[str, Any]:
    step = 2**128 // SHARDS
    return {
        "shardID": number,
        "status": "readwrite",
        "inclusiveBeginKey": f"{number * step:032x}",
        "exclusiveEndKey": f"{min((number + 1) * step, 2**128 - 1):032x}",
        "createTime": 1_700_000_000,
    }
