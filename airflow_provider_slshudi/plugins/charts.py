"""Charts as SVG with axes in HTML, made on the server: values over time, coverage, batches and their steps.

Colours and sizes are the style sheet's. A pointer on a chart shows its values (`<title>`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from markupsafe import Markup, escape

from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.plugins.language import READER, say
from airflow_provider_slshudi.views.history import BatchView
from airflow_provider_slshudi.views.shards import ShardView
from airflow_provider_slshudi.views.trend import FreshnessTrend, Points, Trend
from airflow_provider_slshudi.views.words import amount, count, size, span

_MOST_PARTS = 200
"""Intervals drawn for one shard; a pixel shows no more."""
_BUCKETS, _WIDTH, _HEIGHT, _TICKS = 60, 600, 100, 5
_LONG = timedelta(days=2)
"""Over more than this a time axis shows dates."""
_SHORT = timedelta(minutes=10)
"""Over less than this it shows seconds."""
_SPAN_TICKS = (1, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400)


@dataclass(frozen=True)
class Series:
    """One series of a chart.

    Attributes:
        label: what the legend says, translated.
        css: its class, which gives its colour.
        points: in any order.
        kind: `line` shows the greatest value of an interval, `bar` the sum, `mark` that there is one.
    """

    label: str
    css: str
    points: Points
    kind: str = "line"

    def buckets(self, begin: datetime, seconds: float) -> dict[int, float]:
        """Its value in each interval that has one."""
        values: dict[int, float] = {}
        for moment, value in self.points:
            index = min(int((moment - begin).total_seconds() / seconds * _BUCKETS), _BUCKETS - 1)
            if index >= 0:
                before = values.get(index)
                greater = value if before is None else max(before, value)
                values[index] = greater if self.kind == "line" else value + (before or 0.0)
        return values


def trend_charts(trend: Trend) -> Markup:
    """Lag, bytes in and out, and rows over the trend's time."""
    failed = Series(say("Failed batches"), "failed", trend.failed, "mark")
    ingress = Series(say("Ingress"), "ingress", trend.came)
    egress = Series(say("Egress"), "egress", trend.read, "bar")
    begin, end = trend.begin, trend.end
    return Markup().join(
        (
            chart(say("Lag"), begin, end, [Series(say("Lag"), "lag", trend.lag), failed], span),
            chart(say("Raw Bytes In and Out"), begin, end, [egress, ingress], size),
            chart(
                say("Rows"), begin, end, [Series(say("Committed rows"), "egress", trend.rows, "bar"), failed], _whole
            ),
        )
    )


def freshness_chart(freshness: FreshnessTrend, begin: datetime, end: datetime) -> Markup:
    """How soon batches were visible, beside what was promised."""
    fresh = Series(say("Fresh within"), "lag", freshness.fresh)
    series = [fresh, Series(say("Promised"), "promised", freshness.promised)] if freshness.promised else [fresh]
    return chart(say("Freshness"), begin, end, series, span)


def chart(
    title: str, begin: datetime, end: datetime, series: Sequence[Series], figure: Callable[[float], str]
) -> Markup:
    """Values over time with axes, units, a legend, and the values under the pointer.

    Args:
        title: translated.
        begin: where the time axis begins.
        end: where it ends.
        series: what it shows; it says so if there is nothing.
        figure: a value with its unit.
    """
    seconds = max((end - begin).total_seconds(), 1.0)
    values = [(item, item.buckets(begin, seconds)) for item in series]
    if not any(buckets for item, buckets in values if item.kind != "mark"):
        empty = Markup('<figure class="chart"><figcaption>{}</figcaption><p class="empty">{}</p></figure>')
        return empty.format(title, say("No values in this time."))
    highest = max(value for item, buckets in values if item.kind != "mark" for value in buckets.values())
    top = _nice(highest * 1.05, span_ticks=figure is span)
    shapes = Markup().join(_shape(item, buckets, top) for item, buckets in values)
    step = timedelta(seconds=seconds / _BUCKETS)
    said = Markup().join(
        _bar(
            "hover", index * _WIDTH / _BUCKETS, 0, _WIDTH / _BUCKETS, _HEIGHT, _tip(begin + step * index, shown, figure)
        )
        for index in range(_BUCKETS)
        if (shown := [(item, buckets[index]) for item, buckets in values if index in buckets])
    )
    legend = Markup().join(
        Markup('<span class="key {}">{}</span>').format(item.css, item.label) for item, buckets in values if buckets
    )
    ticks = Markup().join(Markup("<span>{}</span>").format(_figure(figure, part)) for part in (top, top / 2, 0.0))
    return Markup(
        '<figure class="chart"><figcaption>{} <span class="legend">{}</span></figcaption>'
        '<div class="plot"><div class="axis-y">{}</div>{}</div>{}</figure>'
    ).format(title, legend, ticks, _svg("lines", _WIDTH, _HEIGHT, title, shapes + said), _time_axis(begin, end))


def _nice(value: float, span_ticks: bool) -> float:
    if span_ticks and value <= _SPAN_TICKS[-1]:
        return float(next(tick for tick in _SPAN_TICKS if tick >= value))
    unit = 86_400.0 if span_ticks else 1.0
    power = 10.0 ** math.floor(math.log10(max(value / unit, 1.0)))
    return next(factor * power * unit for factor in (1, 2, 5, 10) if factor * power * unit >= value)


def _shape(item: Series, buckets: dict[int, float], top: float) -> Markup:
    width = _WIDTH / _BUCKETS
    if item.kind == "mark":
        return Markup().join(_bar(item.css, index * width, 0, width, 8, item.label) for index in buckets)
    if item.kind == "bar":
        return Markup().join(
            _bar(item.css, index * width, _HEIGHT * (1 - value / top), width - 1, max(_HEIGHT * value / top, 0.5), "")
            for index, value in buckets.items()
        )
    points = " ".join(
        f"{(index + 0.5) * width:.1f},{_HEIGHT * (1 - value / top):.1f}" for index, value in sorted(buckets.items())
    )
    if len(buckets) == 1:  # a line of one point is not seen
        x, y = points.split(",")
        points = f"{float(x) - width / 2:.1f},{y} {float(x) + width / 2:.1f},{y}"
    return Markup('<polyline class="{}" points="{}"></polyline>').format(item.css, points)


def _tip(at: datetime, values: Sequence[tuple[Series, float]], figure: Callable[[float], str]) -> str:
    said = [f"{item.label}: {_figure(_whole if item.kind == 'mark' else figure, value)}" for item, value in values]
    return "\n".join([f"{READER.get().local(at):%Y-%m-%d %H:%M}", *said])


def _figure(figure: Callable[[float], str], value: float) -> str:
    return READER.get().say(figure(value))


def _whole(value: float) -> str:
    return count(round(value)) if value >= 1 else amount(value)


def _time_axis(begin: datetime, end: datetime) -> Markup:
    form, ticks = ("%H:%M:%S", 3) if end - begin < _SHORT else ("%m-%d" if end - begin > _LONG else "%H:%M", _TICKS)
    times = [READER.get().local(begin + (end - begin) * index / (ticks - 1)) for index in range(ticks)]
    parts = Markup().join(Markup("<span>{}</span>").format(f"{moment:{form}}") for moment in times)
    return Markup('<div class="axis-x">{}</div>').format(parts)


def curve(values: Sequence[int], label: str, width: int = 120, height: int = 24) -> Markup:
    """A small curve of unread bytes, oldest first; empty where there are fewer than two values.

    Args:
        values: bytes, oldest first.
        label: for readers of screens.
        width: in pixels.
        height: in pixels.
    """
    if len(values) < 2:
        return Markup()
    top, step = max(*values, 1), width / (len(values) - 1)
    points = " ".join(
        f"{index * step:.1f},{height - 1 - value / top * (height - 2):.1f}" for index, value in enumerate(values)
    )
    return _svg("curve", width, height, label, Markup('<polyline points="{}"></polyline>').format(points))


def coverage(shard: ShardView) -> Markup:
    """A shard's cursors from the begin of duty to its end: committed, being read, not read yet."""
    ranges = [*shard.covered, *shard.running, *shard.missing]
    begin = min([shard.shard.first, *(item.begin for item in ranges)])
    end = max([shard.shard.end or begin, *(item.end for item in ranges)])
    if end <= begin:
        return Markup()
    kinds = (("covered", say("Committed")), ("running", say("Being read")), ("missing", say("Not read yet")))
    parts = [
        _part(kind, said, item, begin, end) for kind, said in kinds for item in getattr(shard, kind)[-_MOST_PARTS:]
    ]
    said = say("Shard {shard}: {n} log groups are not committed", shard=shard.shard.id, n=f"{shard.unread:,}")
    return _svg("coverage", 1000, 12, said, Markup().join(parts))


def _part(kind: str, said: str, item: Range, begin: int, end: int) -> Markup:
    scale = 1000 / (end - begin)
    # Something small that is missing must be seen.
    width = max((item.end - item.begin) * scale, 2.0)
    x = min((item.begin - begin) * scale, 1000 - width)
    groups = say("{n} log groups", n=f"{len(item):,}")
    return _bar(kind, x, 0, width, 12, f"{said}: {item.begin} – {item.end}, {groups}")


def batch_steps(shown: Sequence[BatchView]) -> Markup:
    """Batches on a time line, the newest on top, each with its steps."""
    if not shown:
        return Markup()
    first = min(batch.transaction.created for batch in shown)
    last = max(batch.transaction.changed for batch in shown)
    begin, row = first.timestamp(), 10
    scale = 1000 / max((last - first).total_seconds(), 1.0)
    reader = READER.get()
    parts = []
    for index, batch in enumerate(shown):
        state = batch.transaction.state.value
        name = f"{batch.transaction.id} {reader.say(state.capitalize())}"
        failed = " failed" if state == "ABORTED" else ""
        for step in batch.steps:
            x, width = (step.begin.timestamp() - begin) * scale, max(step.seconds * scale, 2.0)
            kind = f"step-{step.name.partition(' ')[0]}{failed}"
            title = f"{name}\n{reader.say(step.name.capitalize())}: {reader.say(span(step.seconds))}"
            parts.append(_bar(kind, min(x, 1000 - width), index * row, width, row - 2, title))
        if not batch.steps:
            x = (batch.transaction.created.timestamp() - begin) * scale
            parts.append(_bar(f"step-open{failed}", min(x, 998), index * row, 2, row - 2, name))
    keys = (("step-open", say("Open")), ("step-append", say("Append and record")), ("step-commit", say("Commit")))
    legend = Markup().join(Markup('<span class="key {}">{}</span>').format(*key) for key in keys)
    if any(batch.transaction.state.value == "ABORTED" for batch in shown):
        legend += Markup('<span class="key failed">{}</span>').format(say("Aborted"))
    drawing = _svg("batches", 1000, len(shown) * row, say("Batches and their steps"), Markup().join(parts))
    return Markup(
        '<figure class="chart"><figcaption>{} <span class="legend">{}</span></figcaption>{}{}</figure>'
    ).format(say("Batches and Their Steps"), legend, drawing, _time_axis(first, last))


def _bar(kind: str, x: float, y: float, width: float, height: float, title: str) -> Markup:
    said = f"<title>{escape(title)}</title>" if title else ""
    place = f'x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"'
    return Markup(f'<rect class="{kind}" {place}>{said}</rect>')  # noqa: S704 - the title is escaped, the rest is ours


def _svg(kind: str, width: int, height: int, label: str, inner: Markup) -> Markup:
    return Markup(
        '<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}" preserveAspectRatio="none">{}</svg>'
    ).format(kind, width, height, escape(label), inner)
