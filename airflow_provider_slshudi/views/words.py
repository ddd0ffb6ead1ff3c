"""Words and figures that pages and commands share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider_slshudi.views.progress import Estimate, Progress
    from airflow_provider_slshudi.views.standing import Lag


def items(detail: str) -> Mapping[str, Any] | None:
    """An event's items; None where its detail is text."""
    try:
        fields = json.loads(detail)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None


UNKNOWN = "not known"
_SPANS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))
_SIZES = ("B", "kB", "MB", "GB", "TB", "PB")


def span(seconds: float | None) -> str:
    """A span of time in its two largest units: `3 min 20 s`, `2 d 4 h`; below ten seconds with a decimal."""
    if seconds is None:
        return UNKNOWN
    if seconds < 0:
        return f"-{span(-seconds)}"
    if seconds < 10:
        return f"{seconds:.1f} s"
    remaining_seconds = round(seconds)
    parts: list[str] = []
    for size, unit in _SPANS:
        count = int(remaining_seconds // size)
        remaining_seconds -= int(count * size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(filter(None, parts))


def size(count: float | None) -> str:
    """Bytes with three digits: `1.23 GB` (10^9 bytes)."""
    if count is None:
        return UNKNOWN
    index, number = 0, float(count)
    while abs(number) >= 999.5 and index < len(_SIZES) - 1:
        number, index = number / 1000, index + 1
    digits = 0 if index == 0 or number >= 100 else 1 if number >= 10 else 2
    return f"{number:.{digits}f} {_SIZES[index]}"


def rate(bytes_a_second: float | None) -> str:
    """Bytes a second: `1.23 MB/s`."""
    return UNKNOWN if bytes_a_second is None else f"{size(bytes_a_second)}/s"


def count(number: int | None) -> str:
    """A count with its thousands apart: `1,234,567`."""
    return UNKNOWN if number is None else f"{number:,}"


def amount(number: float | None) -> str:
    """A number that need not be whole, with three digits: `0.213`, `12.3`, `1,234`."""
    if number is None:
        return UNKNOWN
    return f"{number:,.0f}" if abs(number) >= 999.5 else f"{number:.3g}"


def ago(at: datetime | float | None, now: datetime) -> str:
    """How long ago a time was: `3 min 20 s ago`; a time to come reads `in 20 s`."""
    if at is None:
        return UNKNOWN
    moment = at if isinstance(at, datetime) else datetime.fromtimestamp(at, timezone.utc)
    seconds = (now - moment).total_seconds()
    return f"in {span(-seconds)}" if seconds < 0 else f"{span(seconds)} ago"


NO_ALERTS = "Airflow tells no person of failures"


def no_alerts(pipeline: str) -> str:
    """Why `NO_ALERTS` holds for a pipeline, and what to do, in a part of a sentence."""
    return (
        f'no running DAG of {pipeline} names a notifier. Name one in `watch_dag("{pipeline}", default_args={{'
        '"on_failure_callback": [...]})`, or what else watches it in [slshudi] watched_by'
    )


def backfill(found: Estimate) -> str:
    """What a backfill would read, in a sentence."""
    if not found.groups:
        return "nothing is left to read"
    shards = len({item.shard for item in found.ranges})
    return (
        f"{count(found.groups)} log groups in {len(found.ranges)} ranges of {shards} shards; by recent batches about "
        f"{size(found.bytes)} raw, {count(found.rows)} rows, {count(found.batches)} batches, {span(found.seconds)}"
    )


def progress(found: Progress) -> str:
    """How far a backfill is, in a sentence."""
    if found.is_over:
        return f"all {count(found.groups)} log groups are committed"
    done = found.groups - found.groups_left
    said = f"{found.share:.0%}: {count(done)} of {count(found.groups)} log groups"
    if found.bytes is not None and found.bytes_left is not None:
        said += f", about {size(found.bytes - found.bytes_left)} of {size(found.bytes)} raw"
    if found.rows is not None and found.rows_left is not None:
        said += f", {count(found.rows - found.rows_left)} of {count(found.rows)} rows"
    if found.failure:
        return f"{said}; it failed: {found.failure}"
    return f"{said}; {rate(found.rate)}, {span(found.seconds)} left"


def behind(lag: Lag | None) -> str:
    """How far behind: `up to 3 min 20 s`."""
    return UNKNOWN if lag is None or lag.seconds is None else f"up to {span(lag.seconds)}"


def expires(lag: Lag | None) -> str:
    """When the service drops the first log that is unread, or came since the look."""
    if lag is None:
        return UNKNOWN
    return span(lag.expires) + ("" if lag.groups else " (nothing was unread)")
