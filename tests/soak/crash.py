"""The local server killed under load; no acknowledged log may be lost."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path

from aliyun.log import LogClient

from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.sls import cursors
from tests.exact.outcome import Outcome, compared
from tests.local.sdk import PROJECT, Unanswered, by_ip, log_group, make_logstore, once, values_of

LOGSTORE, GROUP, SHARDS, WRITERS = "survivors", "readers", 2, 4


def crash(directory: Path, kills: int, seed: int, outcome: Outcome) -> None:
    """Kills the server over `directory` so many times while it is written to, then reads everything back."""
    rng = random.Random(seed)
    server = LocalSls(directory)
    server.start()
    make_logstore(by_ip(server.connection()), LOGSTORE, SHARDS)
    by_ip(server.connection()).create_consumer_group(PROJECT, LOGSTORE, GROUP, 60)
    written: list[bytes] = []
    for round_ in range(kills):
        acknowledged: list[list[bytes]] = [[] for _ in range(WRITERS)]
        checks = [outcome.figures["checkpoints"]]
        threads = [
            threading.Thread(target=_write, args=(once(server.connection()), b"%d-%d" % (round_, place), values))
            for place, values in enumerate(acknowledged)
        ]
        threads.append(threading.Thread(target=_check, args=(once(server.connection()), checks)))
        for thread in threads:
            thread.start()
        time.sleep(rng.uniform(0.05, 0.5))
        os.kill(server.pid, signal.SIGKILL)
        for thread in threads:
            thread.join()
        server.stop()
        server.start()
        written += [value for values in acknowledged for value in values]
        outcome.figures.update(kills=1, checkpoints=checks[0] - outcome.figures["checkpoints"])
        if (checkpoint := _checkpoint(by_ip(server.connection()))) < checks[0]:
            outcome.wrong.append(f"of {checks[0]} acknowledged checkpoints the last {checks[0] - checkpoint} are lost")
    _compare(by_ip(server.connection()), written, outcome)
    server.stop()


def _write(client: LogClient, name: bytes, acknowledged: list[bytes]) -> None:
    for number in range(1 << 30):
        value = b"%s-%d-%s" % (name, number, b"x" * (number % 7 * 3000))
        try:
            client.put_log_raw(PROJECT, LOGSTORE, log_group(value))
        except Unanswered:
            return
        acknowledged.append(value)


def _check(client: LogClient, newest: list[int]) -> None:
    while True:
        try:
            client.update_check_point(PROJECT, LOGSTORE, GROUP, 0, cursors.text(newest[0] + 1))
        except Unanswered:
            return
        newest[0] += 1


def _checkpoint(client: LogClient) -> int:
    (kept,) = client.get_check_point(PROJECT, LOGSTORE, GROUP, 0).get_consumer_group_check_points()
    return cursors.parse(kept["checkpoint"]) if kept["checkpoint"] else 0


def _compare(client: LogClient, written: list[bytes], outcome: Outcome) -> None:
    kept: list[bytes] = []
    for shard in range(SHARDS):
        last: dict[bytes, int] = {}
        for (value,) in values_of(client, LOGSTORE, shard):
            kept.append(value)
            writer, number = value.rsplit(b"-", 2)[0], int(value.split(b"-")[2])
            if number <= last.get(writer, -1):
                outcome.wrong.append(f"shard {shard}: {number} of {writer!r} is out of order")
            last[writer] = number
    # A log may be there whose answer was lost.
    outcome.add(compared("the SDK", kept, {*written, *kept}))
    outcome.logs = len(written)
