"""MB/s of raw protobuf that one core pulls into Arrow, by each decoder, beside the official SDK's own dicts.

    python benchmarks/decode.py [--rounds 7] [--pulls 10]

The server is a process of its own that sends the same lz4 answer again and again, so that it is not what is measured:
the figures are CPU seconds of this process, all threads together. All ways take turns in one run, and check what they
got. The last line is about the decoder that is in use. The lines before it say what looking for keys that no column
names adds to decoding, where columns name every second key.
"""

from __future__ import annotations

import argparse
import functools
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

from airflow_provider_slshudi.cli.demo.put import ad_events
from airflow_provider_slshudi.sls import cursors, ptars_decode
from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.sls.decode import decoder
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.spark.driver.unnamed_keys import UnnamedKeys
from airflow_provider_slshudi.system.secrets import Secret

BEGIN = 100
Measured = Callable[[], Any]
DECODERS = {each.__name__.rsplit(".")[-1].removesuffix("_decode"): each for each in (decoder, ptars_decode)}
"""By their names: the one in use first."""


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
        service = LogService(SlsConnection(endpoint, "id", Secret("key")), "project", "logs")
        client: Any = LogClient(endpoint, "id", "key", source="bench")
        client._isRowIp = True
        first, last = cursors.text(BEGIN), cursors.text(BEGIN + groups)

        def ours() -> Any:
            return service.pull(0, BEGIN, BEGIN + groups)

        def arrow(decode: Callable[..., Any]) -> Any:
            pull = ours()
            return decode(pull.body, 0, pull.begin, keys, pull.groups)

        def sdk() -> Any:
            return client.pull_logs("project", "logs", 0, first, 1000, last)

        def dicts() -> Any:
            return sdk().get_flatten_logs_json()

        runs: dict[str, Measured] = {"answer as bytes, ours": ours, "answer as bytes, SDK": sdk}
        for kind, module in DECODERS.items():
            runs[f"Arrow table, {kind}"] = functools.partial(arrow, module.decode)
            runs[f"decoding alone, {kind}"] = functools.partial(module.decode, body, 0, BEGIN, keys, groups)
        runs["dicts, SDK"] = dicts
        flat = dicts()
        wanted = [[log[key].encode() if key in log else None for log in flat] for key in keys]
        for kind, module in DECODERS.items():
            table = arrow(module.decode)
            if len(flat) != logs or [table[key].to_pylist() for key in keys] != wanted:
                raise SystemExit(f"{name}: {kind} and the SDK do not give the same logs")
        del table, flat, wanted
        spent = _spent(runs, rounds, pulls)
    finally:
        server.terminate()
        server.join()
    speed = {run: len(body) / seconds / 1e6 for run, seconds in spent.items()}
    print(f"{name}: {len(body) / 1e6:.1f} MB raw a pull, {len(body) / logs:.0f} bytes a log")
    for run, found in speed.items():
        print(f"  {run:<24}{found:8.0f} MB/s   {1000 / found:6.2f} CPU s per GB")
    return speed[f"Arrow table, {next(iter(DECODERS))}"], speed["dicts, SDK"]


def look(name: str, listed: LogGroupListRaw, keys: list[str], rounds: int, pulls: int) -> None:
    """Prints the CPU of looking for keys that no column names as a part of that of decoding."""
    body, groups, runs = listed.SerializeToString(), len(listed.LogGroups), dict[str, Measured]()
    for kind, module in DECODERS.items():
        decode = functools.partial(module.decode, body, 0, BEGIN, keys[::2], groups)
        table = decode()
        runs[f"decode, {kind}"] = decode
        seen = UnnamedKeys(with_values=True)
        for _ in range(200):  # a task's first looks are not rationed
            seen.add(table)
        runs[f"look, {kind}"] = functools.partial(seen.add, table)
        runs[f"first, {kind}"] = functools.partial(_first_looks, table)
    spent = _spent(runs, rounds, pulls)
    for kind in DECODERS:
        share, first = spent[f"look, {kind}"] / spent[f"decode, {kind}"], spent[f"first, {kind}"] * 1000
        print(
            f"{name}, {kind}: looking for unnamed keys adds {share:.2%}; a task's first ten pulls cost {first:.1f} ms"
        )


def _first_looks(table: Any) -> None:
    seen = UnnamedKeys(with_values=True)
    for _ in range(10):
        seen.add(table)


def _spent(runs: dict[str, Measured], rounds: int, pulls: int) -> dict[str, float]:
    """CPU seconds of one pull in each way: the median of rounds that take turns."""
    spent: dict[str, list[float]] = {run: [] for run in runs}
    for _ in range(rounds):
        for run, call in runs.items():
            started = time.process_time()
            for _ in range(pulls):
                call()
            spent[run].append((time.process_time() - started) / pulls)
    return {run: statistics.median(times) for run, times in spent.items()}


def main() -> None:
    """Prints all figures, and the ratios last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="rounds whose median counts (default: %(default)s)")
    parser.add_argument("--pulls", type=int, default=10, help="pulls of a round (default: %(default)s)")
    given = parser.parse_args()
    found = [measure(*made(), given.rounds, given.pulls) for made in (demo_events, ragged)]
    for made in (demo_events, ragged):
        # A look comes every few pulls.
        look(*made(), given.rounds, 10 * given.pulls)
    (arrow, dicts), (small, small_dicts) = found
    print(
        f"{arrow / dicts:.1f} times the SDK's dicts: {arrow:.0f} MB/s of raw protobuf a core, SDK {dicts:.0f} MB/s "
        f"(ad events); {small / small_dicts:.1f} times with small, ragged log groups; by {next(iter(DECODERS))}"
    )


if __name__ == "__main__":
    main()
