"""`python -m tests.soak.crash --kills 50`: the local server killed under load; no acknowledged log may be lost."""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from aliyun.log import LogClient

from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.sls import cursors
from tests.local.sdk import PROJECT, Unanswered, by_ip, log_group, make_logstore, once, values_of

LOGSTORE, GROUP, SHARDS, WRITERS = "survivors", "readers", 2, 4


@dataclass(slots=True)
class Outcome:
    """What was acknowledged over all kills, and what is not there."""

    seed: int
    kills: int = 0
    acknowledged: int = 0
    lost: list[bytes] = field(default_factory=list)
    twice: list[bytes] = field(default_factory=list)
    disordered: int = 0
    checkpoints: int = 0
    checkpoints_lost: int = 0

    @property
    def ok(self) -> bool:
        """Whether everything acknowledged is there, once and in order."""
        return not (self.lost or self.twice or self.disordered or self.checkpoints_lost) and self.acknowledged > 0

    def __str__(self) -> str:
        return (
            f"crash soak: {self.kills} SIGKILLs, {self.acknowledged} acknowledged log groups: {len(self.lost)} lost, "
            f"{len(self.twice)} twice, {self.disordered} out of order; {self.checkpoints} acknowledged checkpoints: "
            f"{self.checkpoints_lost} lost (seed {self.seed})"
        )


def crash(directory: Path, kills: int, seed: int) -> Outcome:
    """Kill the server over `directory` so many times while it is written to, then read everything back."""
    rng, outcome = random.Random(seed), Outcome(seed)
    server = LocalSls(directory)
    server.start()
    make_logstore(by_ip(server.connection()), LOGSTORE, SHARDS)
    by_ip(server.connection()).create_consumer_group(PROJECT, LOGSTORE, GROUP, 60)
    written: list[bytes] = []
    for round_ in range(kills):
        acknowledged: list[list[bytes]] = [[] for _ in range(WRITERS)]
        checks = [outcome.checkpoints]
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
        outcome.kills += 1
        outcome.checkpoints = checks[0]
        outcome.checkpoints_lost += max(0, checks[0] - _checkpoint(by_ip(server.connection())))
    _compare(by_ip(server.connection()), written, outcome)
    server.stop()
    return outcome


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
    outcome.acknowledged = len(written)
    kept: Counter[bytes] = Counter()
    for shard in range(SHARDS):
        last: dict[bytes, int] = {}
        for (value,) in values_of(client, LOGSTORE, shard):
            kept[value] += 1
            writer, number = value.rsplit(b"-", 2)[0], int(value.split(b"-")[2])
            outcome.disordered += number <= last.get(writer, -1)
            last[writer] = number
    outcome.lost = [value for value in written if not kept[value]]
    outcome.twice = [value for value, times in kept.items() if times > 1]


def main() -> int:
    """Run it; the exit code says whether all was well."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        outcome = crash(Path(directory), arguments.kills, arguments.seed)
    print(outcome)
    return 0 if outcome.ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
