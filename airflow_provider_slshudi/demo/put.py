"""Puts ad events into a logstore with the official SDK, as a process of its own; prints its progress line by line.

    python -m airflow_provider_slshudi.demo.put PROJECT LOGSTORE

Each line of its standard input is a number of logs: it puts logs until it has put that many in all. It ends with its
input. The connection is in the environment (`SlsConnection.to_env`). More than half of the logs go to one shard.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import time
from collections.abc import Iterator
from typing import Any, cast

from aliyun.log import LogClient, LogItem, PutLogsRequest

from airflow_provider_slshudi.demo.events import Contents, ad_events
from airflow_provider_slshudi.sls.connection import SlsConnection, split_endpoint

LOGS_PER_PUT = 1000
HOT_SHARE = 0.55
# The first shard's span of hash keys begins with zero.
HOT_KEY = "0" * 32


def sdk_client(connection: SlsConnection) -> LogClient:
    """The SDK's client as it comes, with its retries."""
    client: Any = LogClient(
        connection.endpoint, connection.access_key_id, connection.access_key_secret.reveal(), source="10.0.0.1"
    )
    # No name server knows `project.IP`: the SDK sees a bare address only, not one with a port; the switch is private.
    client._isRowIp = split_endpoint(connection.endpoint)[1].replace(".", "").isdigit()
    return cast(LogClient, client)


def main(arguments: list[str]) -> int:
    """Puts as many logs as standard input asks for."""
    project, logstore = arguments
    client = sdk_client(SlsConnection.from_env(os.environ))
    now = int(time.time())
    events, dice = ad_events(now, now * 1000), random.Random(now)  # noqa: S311 - sample data
    done = 0
    for line in sys.stdin:
        for count in _steps(int(line) - done):
            contents = list(itertools.islice(events, count))
            hot = HOT_KEY if dice.random() < HOT_SHARE else None
            client.put_logs(PutLogsRequest(project, logstore, "ad_events", "10.0.0.1", _items(contents), hot))
            done += count
            print(done, flush=True)
    return 0


def _steps(count: int) -> Iterator[int]:
    for start in range(0, count, LOGS_PER_PUT):
        yield min(LOGS_PER_PUT, count - start)


def _items(contents: list[Contents]) -> list[LogItem]:
    now = int(time.time())
    return [LogItem(now, contents=pairs) for pairs in contents]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
