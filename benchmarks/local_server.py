"""`python benchmarks/local_server.py`: what the local SLS server serves and accepts per second of its own CPU time.

The client's work is not counted, so the figures say whether the server is what a benchmark against it measures.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import islice

import lz4.block
import psutil
from aliyun.log import LogClient
from aliyun.log.log_logs_raw_pb2 import LogGroupRaw

from airflow_provider_slshudi.cli.demo.put import ad_events
from airflow_provider_slshudi.local import LocalSls

PROJECT, LOGSTORE = "bench-project", "bench"
LOGS_A_GROUP, GROUPS = 100, 400
TRIES = 3
"""The best of so many counts: the first also loads code, and others may use the caches of this machine's cores."""
FLOORS = {"served_lz4_mb_s": 400.0, "served_plain_mb_s": 400.0, "accepted_logs_s": 100_000.0}
"""What the server is held to, per second of CPU time."""


def _group(seed: int) -> LogGroupRaw:
    group = LogGroupRaw(Topic="ads", Source="10.0.0.1")
    for number, contents in enumerate(islice(ad_events(seed, 1_700_000_000_000), LOGS_A_GROUP)):
        log = group.Logs.add(Time=1_700_000_000 + number)
        for key, value in contents:
            log.Contents.add(Key=key, Value=value.encode())
    return group


def _cpu(process: psutil.Process, work: Callable[[], int]) -> tuple[int, float]:
    """What `work` returns, and the seconds of CPU time that `process` spent meanwhile."""
    before = process.cpu_times()
    amount = work()
    after = process.cpu_times()
    return amount, after.user + after.system - before.user - before.system


def _pull_all(client: LogClient, kind: str | None) -> int:
    """Bytes of all log groups of the shard, pulled from its begin to its end."""
    size: int = 0
    cursor = client.get_begin_cursor(PROJECT, LOGSTORE, 0).get_cursor()
    while True:
        answer = client.pull_logs(PROJECT, LOGSTORE, 0, cursor, compress=bool(kind), accept_compress_type=kind)
        size += answer.get_raw_size()
        if answer.get_next_cursor() == cursor:
            return size
        cursor = answer.get_next_cursor()


def measure(server: LocalSls, rounds: int) -> dict[str, float]:
    """MB/s served in each compression and logs/s accepted, per second of the server's CPU time."""
    connection = server.connection()
    client = LogClient(
        connection.endpoint, connection.access_key_id, connection.access_key_secret.reveal(), source="bench"
    )
    client._isRowIp = True
    client.create_project(PROJECT, "")
    client.create_logstore(PROJECT, LOGSTORE, shard_count=1)
    process, groups = psutil.Process(server.pid), [_group(seed) for seed in range(20)]

    def put() -> int:
        for number in range(GROUPS):
            client.put_log_raw(PROJECT, LOGSTORE, groups[number % len(groups)])
        return GROUPS * LOGS_A_GROUP

    def pull(kind: str | None) -> int:
        return sum(_pull_all(client, kind) for _ in range(rounds))

    def best(work: Callable[[], int]) -> float:
        return max(amount / seconds for amount, seconds in (_cpu(process, work) for _ in range(TRIES)))

    figures = {"accepted_logs_s": best(put)}
    for name, kind in (("lz4", "lz4"), ("zstd", "zstd"), ("plain", None)):
        figures[f"served_{name}_mb_s"] = best(partial(pull, kind)) / 1e6
    figures["lz4_ratio"] = _lz4_ratio(groups)
    return figures


def _lz4_ratio(groups: list[LogGroupRaw]) -> float:
    raw = b"".join(group.SerializeToString() for group in groups)
    return len(lz4.block.compress(raw, store_size=False)) / len(raw)


def main() -> int:
    """Print the figures, how they stand to the floors, and JSON as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often a try pulls everything (default: %(default)s)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, LocalSls(directory) as server:
        figures = measure(server, arguments.rounds)
    for name, floor in FLOORS.items():
        print(f"{name}: {figures[name]:,.0f}, {figures[name] / floor:.1f} times the floor of {floor:,.0f}")
    print(json.dumps({name: round(value, 2) for name, value in figures.items()}))
    return 0 if all(figures[name] >= floor for name, floor in FLOORS.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
