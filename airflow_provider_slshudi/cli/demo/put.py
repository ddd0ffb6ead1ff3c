"""Made-up events of an ad platform, put into a logstore; run as a process of its own."""

from __future__ import annotations

import itertools
import os
import random
import sys
import time
from collections.abc import Iterator
from typing import Any, cast

from aliyun.log import LogClient, LogItem, PutLogsRequest

from airflow_provider_slshudi.sls.connection import SlsConnection, split_endpoint

_DEVICES = (("phone", "Android 14"), ("phone", "iOS 17.5"), ("tablet", "iPadOS 17"), ("desktop", "Windows 11"))
_PLACES = (
    ("CN", "Hangzhou"),
    ("CN", "Shanghai"),
    ("CN", "Chengdu"),
    ("SG", "Singapore"),
    ("DE", "Berlin"),
    ("BR", "São Paulo"),
    ("JP", "東京"),
)
_TYPES = ("impression",) * 17 + ("click",) * 2 + ("conversion",)
_PLACEMENTS = ("feed_top", "feed_inline", "story", "search_result", "splash", "rewarded_video")
_CURRENCIES = ("CNY", "CNY", "USD", "EUR")
_AGENTS = (
    "Mozilla/5.0 (Linux; Android 14; 23127PN0CC) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/124.0.0.0 Mobile "
    "Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 "
    "Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (iPad; CPU OS 17_4 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.4 Safari/604.1",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/124.0.0.0 Safari/537.36",
)
Contents = list[tuple[str, str]]


def ad_events(seed: int, start_millis: int) -> Iterator[Contents]:
    """Endless ad events, a few milliseconds apart, as (key, value) pairs; the same seed gives the same events."""
    rng = random.Random(seed)  # noqa: S311 - sample data
    bits, pick, now = rng.getrandbits, rng.choice, start_millis
    while True:
        now += bits(3)
        device, os_name = pick(_DEVICES)
        country, city = pick(_PLACES)
        kind, campaign = pick(_TYPES), 10_000 + bits(9)
        event, user = f"{bits(128):032x}", f"u{bits(40):010x}"
        yield [
            ("event_id", event),
            ("event_time", str(now)),
            ("event_type", kind),
            ("ad_id", str(campaign * 100 + bits(5))),
            ("campaign_id", str(campaign)),
            ("user_id", user),
            ("device", device),
            ("os", os_name),
            ("country", country),
            ("city", city),
            ("placement", pick(_PLACEMENTS)),
            ("price", f"{bits(14) / 10_000:.4f}"),
            ("currency", pick(_CURRENCIES)),
            ("clicked", "true" if kind == "click" else "false"),
            ("ip", f"10.{bits(8)}.{bits(8)}.{bits(8)}"),
            ("user_agent", pick(_AGENTS)),
            ("url", f"https://ads.example.com/{kind}?c={campaign}&e={event}&u={user}&s={bits(32):08x}"),
            ("request_id", f"{bits(64):016x}"),
        ]


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
