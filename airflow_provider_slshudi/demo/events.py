"""Ad events as an ad platform writes them: about 600 bytes each, ids that never repeat, strings that do."""

from __future__ import annotations

import random
from collections.abc import Iterator

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
