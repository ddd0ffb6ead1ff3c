"""MB/s of raw protobuf that one core pulls into Arrow, beside the official SDK's own dicts in the same run.

    python benchmarks/decode.py [--rounds 7] [--pulls 10]

The server is a process of its own that sends the same lz4 answer again and again, so that it is not what is measured:
the figures are CPU seconds of this process, all threads together. Both clients check what they got in the same run.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import multiprocessing.dummy
import random
import socket
import statistics
import time
from collections.abc import Callable
from typing import Any

import lz4.block
from aliyun.log import LogClient
from aliyun.log.log_logs_raw_pb2 import LogGroupListRaw

from airflow_provider_slshudi.demo.events import ad_events
from airflow_provider_slshudi.sls import cursors
from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.sls.decode import decode
from airflow_provider_slshudi.sls.service import LogService

BEGIN = 100
Measured = Callable[[], Any]


def demo_events() -> tuple[str, LogGroupListRaw, list[str]]:
    """The demo's ad events: 10 log groups of 1000 logs with 18 fields."""
    events, listed = ad_events(1, 1_700_000_000_000), LogGroupListRaw()
    for _ in range(10):
        group = listed.LogGroups.add(Topic="ad_events", Source="10.0.0.1")
        for pairs in itertools.islice(events, 1000):
            log = group.Logs.add(Time=1_700_000_000)
            for key, value in pairs:
                log.Contents.add(Key=key, Value=value.encode())
    return "ad events, 1000 logs a group", listed, [key for key, _ in next(events)]


def ragged() -> tuple[str, LogGroupListRaw, list[str]]:
    """1000 log groups of 10 logs with 4 tags and 16 fields, of which a tenth is missing; some logs have one more."""
    dice, listed = random.Random(1), LogGroupListRaw()  # noqa: S311 - sample data
    keys = [f"field_{number:02d}" for number in range(16)]
    for _ in range(1000):
        group = listed.LogGroups.add(Topic="access", Source="10.0.0.1")
        for number in range(4):
            group.LogTags.add(Key=f"tag{number}", Value=f"value{number}")
        for _ in range(10):
            log = group.Logs.add(Time=1_700_000_000)
            for key in keys:
                if dice.random() >= 0.1:
                    log.Contents.add(Key=key, Value=b"%x" % dice.getrandbits(96))
            if dice.random() < 0.05:
                log.Contents.add(Key="unknown", Value=b"value")
    return "ragged logs, 10 logs a group", listed, keys


def serve(ready: Any, body: bytes, groups: int) -> None:
    """Answers every request on every connection with one pull."""
    packed = lz4.block.compress(body, store_size=False)
    head = (
        f"HTTP/1.1 200 OK\r\ncontent-length: {len(packed)}\r\nx-log-count: {groups}\r\n"
        f"x-log-bodyrawsize: {len(body)}\r\nx-log-cursor: {cursors.text(BEGIN + groups)}\r\n"
        "x-log-compresstype: lz4\r\nx-log-requestid: A\r\n\r\n"
    )
    answer, waiting = head.encode() + packed, socket.create_server(("127.0.0.1", 0))
    ready.send(waiting.getsockname()[1])
    while True:
        connection, _ = waiting.accept()
        multiprocessing.dummy.Process(target=_talk, args=(connection, answer)).start()


def _talk(connection: socket.socket, answer: bytes) -> None:
    seen = b""
    while piece := connection.recv(65536):
        *whole, seen = (seen + piece).split(b"\r\n\r\n")
        for _ in whole:
            connection.sendall(answer)


def measure(name: str, listed: LogGroupListRaw, keys: list[str], rounds: int, pulls: int) -> tuple[float, float]:
    """MB/s of a core: (pull to Arrow, pull to the SDK's dicts)."""
    body, groups = listed.SerializeToString(), len(listed.LogGroups)
    logs = sum(len(group.Logs) for group in listed.LogGroups)
    here, there = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(there, body, groups), daemon=True)
    server.start()
    try:
        endpoint = f"127.0.0.1:{here.recv()}"
        service = LogService(SlsConnection(endpoint, "id", "key"), "project", "logs")
        client: Any = LogClient(endpoint, "id", "key", source="bench")
        client._isRowIp = True
        first, last = cursors.text(BEGIN), cursors.text(BEGIN + groups)

        def ours() -> Any:
            return service.pull(0, BEGIN, BEGIN + groups)

        def arrow() -> Any:
            pull = ours()
            return decode(pull.body, 0, pull.begin, keys, pull.groups)

        def sdk() -> Any:
            return client.pull_logs("project", "logs", 0, first, 1000, last)

        def dicts() -> Any:
            return sdk().get_flatten_logs_json()

        table, flat = arrow(), dicts()
        wanted = [[log[key].encode() if key in log else None for log in flat] for key in keys]
        if len(flat) != logs or [table[key].to_pylist() for key in keys] != wanted:
            raise SystemExit(f"{name}: the two ways do not give the same logs")
        del table, flat, wanted
        spent = _spent((ours, arrow, sdk, dicts), rounds, pulls)
    finally:
        server.terminate()
        server.join()
    speed = {run: len(body) / seconds / 1e6 for run, seconds in spent.items()}
    print(f"{name}: {len(body) / 1e6:.1f} MB raw a pull, {len(body) / logs:.0f} bytes a log")
    for text, run in (("answer as bytes, ours", ours), ("answer as bytes, SDK", sdk), ("Arrow table, ours", arrow)):
        print(f"  {text:<24}{speed[run]:8.0f} MB/s   {1000 / speed[run]:6.2f} CPU s per GB")
    print(f"  {'dicts, SDK':<24}{speed[dicts]:8.0f} MB/s   {1000 / speed[dicts]:6.2f} CPU s per GB")
    return speed[arrow], speed[dicts]


def _spent(runs: tuple[Measured, ...], rounds: int, pulls: int) -> dict[Measured, float]:
    """CPU seconds of one pull in each way: the median of rounds that take turns."""
    spent: dict[Measured, list[float]] = {run: [] for run in runs}
    for _ in range(rounds):
        for run in runs:
            started = time.process_time()
            for _ in range(pulls):
                run()
            spent[run].append((time.process_time() - started) / pulls)
    return {run: statistics.median(times) for run, times in spent.items()}


def main() -> None:
    """Prints all figures, and the ratios last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="rounds whose median counts (default: %(default)s)")
    parser.add_argument("--pulls", type=int, default=10, help="pulls of a round (default: %(default)s)")
    given = parser.parse_args()
    found = [measure(*made(), given.rounds, given.pulls) for made in (demo_events, ragged)]
    (arrow, dicts), (small, small_dicts) = found
    print(
        f"{arrow / dicts:.1f} times the SDK's dicts: {arrow:.0f} MB/s of raw protobuf a core, SDK {dicts:.0f} MB/s "
        f"(ad events); {small / small_dicts:.1f} times with small, ragged log groups"
    )


if __name__ == "__main__":
    main()
