"""Words and figures that pages and commands share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.handover.names import Act

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


class Text(str):
    """A sentence in English that keeps its template and its values, so that a page can say it in another language."""

    template: str
    values: Mapping[str, Any]

    def __new__(cls, template: str, **values: Any) -> Text:
        """The sentence.

        Args:
            template: English, with `{name}` where a value stands.
            values: by name; those that are `Text` are translated, too.
        """
        text = str.__new__(cls, template.format(**values))
        text.template, text.values = template, values
        return text

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """A copy is the plain sentence."""
        return str, (str(self),)


class Figure(Text):
    """A figure with its unit, which a page keeps on one line."""


TIME = "{at:%Y-%m-%d %H:%M} UTC"
"""The template of a `moment`."""
UNKNOWN = "not known"
SPANS = ((86_400.0, "{n} d"), (3_600.0, "{n} h"), (60.0, "{n} min"), (1.0, "{n} s"))
"""The units of a span: seconds, and its template."""
_SIZES = ("B", "kB", "MB", "GB", "TB", "PB")


def moment(at: datetime) -> Text:
    """A time (UTC) within a sentence; a page shows it in the zone of who looks."""
    return Figure(TIME, at=at)


def span(seconds: float | None) -> str:
    """A span of time in its two largest units: `3 min 20 s`, `2 d 4 h`; below ten seconds with a decimal."""
    if seconds is None:
        return UNKNOWN
    if seconds < 0:
        return Figure("-{span}", span=span(-seconds))
    if seconds < 10:
        return Figure("{n} s", n=f"{seconds:.1f}")
    remaining_seconds = round(seconds)
    parts: list[Figure | None] = []
    for size, unit in SPANS:
        count = int(remaining_seconds // size)
        remaining_seconds -= int(count * size)
        if count or parts:
            parts.append(Figure(unit, n=count) if count else None)
        if len(parts) == 2:
            break
    larger, *smaller = [part for part in parts if part is not None]
    return Figure("{larger} {smaller}", larger=larger, smaller=smaller[0]) if smaller else larger


def size(count: float | None) -> str:
    """Bytes with three digits: `1.23 GB` (10^9 bytes)."""
    if count is None:
        return UNKNOWN
    index, number = 0, float(count)
    while abs(number) >= 999.5 and index < len(_SIZES) - 1:
        number, index = number / 1000, index + 1
    digits = 0 if index == 0 or number >= 100 else 1 if number >= 10 else 2
    return Figure("{n} {unit}", n=f"{number:.{digits}f}", unit=_SIZES[index])


def rate(bytes_a_second: float | None) -> str:
    """Bytes a second: `1.23 MB/s`."""
    return UNKNOWN if bytes_a_second is None else Figure("{size}/s", size=size(bytes_a_second))


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
    return Figure("in {span}", span=span(-seconds)) if seconds < 0 else Figure("{span} ago", span=span(seconds))


NO_ALERTS = "Airflow tells no person of failures"


def no_alerts(pipeline: str) -> str:
    """Why `NO_ALERTS` holds for a pipeline, and what to do, in a part of a sentence."""
    return Text(
        "no running DAG of {name} names a notifier. Name one in `{call}`, or what else watches it in [slshudi] "
        "watched_by",
        name=pipeline,
        call=f'watch_dag("{pipeline}", default_args={{"on_failure_callback": [...]}})',
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
        return Text("all {groups} log groups are committed", groups=count(found.groups))
    groups, all_groups = count(found.groups - found.groups_left), count(found.groups)
    said = Text("{share}: {done} of {all} log groups", share=f"{found.share:.0%}", done=groups, all=all_groups)
    if found.bytes is not None and found.bytes_left is not None:
        read = size(found.bytes - found.bytes_left)
        said = Text("{said}, about {done} of {all} raw", said=said, done=read, all=size(found.bytes))
    if found.rows is not None and found.rows_left is not None:
        rows = count(found.rows - found.rows_left)
        said = Text("{said}, {done} of {all} rows", said=said, done=rows, all=count(found.rows))
    if found.failure:
        return Text("{said}; it failed: {failure}", said=said, failure=found.failure)
    if found.rate is None or found.seconds is None:
        return Text("{said}; the time that is left shows after a batch", said=said)
    return Text("{said}; {rate}, {span} left", said=said, rate=rate(found.rate), span=span(found.seconds))


def behind(lag: Lag | None) -> str:
    """How far behind: `up to 3 min 20 s`."""
    return UNKNOWN if lag is None or lag.seconds is None else Figure("up to {span}", span=span(lag.seconds))


def expires(lag: Lag | None) -> str:
    """When the service drops the first log that is unread, or came since the look."""
    if lag is None or lag.expires is None:
        return UNKNOWN
    return span(lag.expires) if lag.groups else Text("{span} (nothing was unread)", span=span(lag.expires))


ACTS: Mapping[Act, str] = {
    Act.RECOVER: "Recover batches",
    Act.ABANDON: "Give up batch",
    Act.BREAK_LEASE: "Break lease",
    Act.REBUILD_LEDGER: "Rebuild ledger",
    Act.TABLE_IS_GONE: "Start over with a new table",
    Act.REBUILD_METADATA: "Rebuild metadata table",
    Act.REPLAY: "Replay quarantined logs",
    Act.DISMISS: "Dismiss failures",
    Act.ACCEPT_ERASED: "Accept erased rows",
    Act.ACCEPT_GAP: "Accept data loss",
    Act.SKIP: "Skip unreadable logs",
}
"""What a page calls each act."""
