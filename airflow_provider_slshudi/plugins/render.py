"""Pages as HTML: templates, and drawings as SVG, made of figures: curves, coverage, batches on a time line.

Colours are the style sheet's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from airflow_provider_slshudi.handover.names import PREFIX
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.views import words
from airflow_provider_slshudi.views.advice import advice, remedy
from airflow_provider_slshudi.views.history import BatchView
from airflow_provider_slshudi.views.shards import ShardView
from airflow_provider_slshudi.views.words import size, span

_MOST_PARTS = 200
"""Intervals drawn for one shard; a pixel shows no more."""
_KINDS = (("covered", "committed"), ("running", "being read"), ("missing", "not read yet"))


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
    return _svg(
        "curve", width, height, label, Markup('<polyline points="{}"></polyline>').format(points), stretched=False
    )


def coverage(shard: ShardView) -> Markup:
    """A shard's cursors from the begin of duty to its end: committed, being read, not read yet."""
    ranges = [*shard.covered, *shard.running, *shard.missing]
    begin = min([shard.shard.first, *(item.begin for item in ranges)])
    end = max([shard.shard.end or begin, *(item.end for item in ranges)])
    if end <= begin:
        return Markup()
    parts = [
        _part(kind, said, item, begin, end) for kind, said in _KINDS for item in getattr(shard, kind)[-_MOST_PARTS:]
    ]
    said = f"shard {shard.shard.id}: {shard.unread:,} log groups are not committed"
    return _svg("coverage", 1000, 12, said, Markup().join(parts))


def _part(kind: str, said: str, item: Range, begin: int, end: int) -> Markup:
    scale = 1000 / (end - begin)
    # Something small that is missing must be seen.
    width = max((item.end - item.begin) * scale, 2.0)
    x = min((item.begin - begin) * scale, 1000 - width)
    title = f"{said}: {item.begin} to {item.end}, {len(item):,} log groups"
    return Markup('<rect class="{}" x="{:.2f}" y="0" width="{:.2f}" height="12"><title>{}</title></rect>').format(
        kind, x, width, title
    )


def batches(shown: Sequence[BatchView]) -> Markup:
    """Batches on a time line, the newest on top, each with its steps."""
    if not shown:
        return Markup()
    begin = min(batch.transaction.created for batch in shown).timestamp()
    end = max(batch.transaction.changed for batch in shown).timestamp()
    scale, row = 1000 / max(end - begin, 1.0), 10
    parts = []
    for index, batch in enumerate(shown):
        state = batch.transaction.state.value
        steps = batch.steps or []
        for step in steps:
            x, width = (step.begin.timestamp() - begin) * scale, max(step.seconds * scale, 1.0)
            name = step.name.partition(" ")[0]
            title = f"{batch.transaction.id} {state}: {step.name} took {span(step.seconds)}"
            parts.append(_bar(f"step-{name} {state.lower()}", x, index * row, width, row - 2, title))
        if not steps:
            x = (batch.transaction.created.timestamp() - begin) * scale
            parts.append(
                _bar(f"step-none {state.lower()}", x, index * row, 2, row - 2, f"{batch.transaction.id} {state}")
            )
    return _svg("batches", 1000, len(shown) * row, "batches and their steps", Markup().join(parts))


def volumes(shown: Sequence[BatchView], height: int = 60) -> Markup:
    """Raw bytes of the batches, oldest first, as columns."""
    if not shown:
        return Markup()
    ordered = list(reversed(shown))
    top, width = max(*(batch.transaction.bytes for batch in ordered), 1), 1000 / len(ordered)
    parts = []
    for index, batch in enumerate(ordered):
        tall = batch.transaction.bytes / top * (height - 1)
        said = f"{batch.transaction.id}: {size(batch.transaction.bytes)}, {batch.transaction.rows:,} rows"
        state = batch.transaction.state.value.lower()
        parts.append(_bar(f"volume {state}", index * width, height - tall, max(width - 1, 0.5), max(tall, 1.0), said))
    return _svg("volumes", 1000, height, "raw bytes of each batch", Markup().join(parts))


def _bar(kind: str, x: float, y: float, width: float, height: float, title: str) -> Markup:
    return Markup(
        '<rect class="{}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"><title>{}</title></rect>'
    ).format(kind, x, y, width, height, title)


def _svg(kind: str, width: int, height: int, label: str, inner: Markup, stretched: bool = True) -> Markup:
    stretch = Markup(' preserveAspectRatio="none"') if stretched else Markup()
    return Markup('<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}"{}>{}</svg>').format(
        kind, width, height, escape(label), stretch, inner
    )


_HERE = Path(__file__).parent
STATIC = {path.name: path for path in sorted((_HERE / "static").iterdir()) if path.suffix in (".css", ".js")}
"""The files beside the pages, by name."""
_HEADERS = {
    # Only what comes from here runs or is loaded, and only Airflow's own pages may frame it.
    "Content-Security-Policy": "default-src 'self'; style-src 'self'; frame-ancestors 'self'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def page(request: Request, template: str, code: int = 200, **values: Any) -> HTMLResponse:
    """One page of a template."""
    # Airflow may live below a path of its own.
    here = str(request.scope.get("root_path", "")).removesuffix("/")
    airflow = here.removesuffix(PREFIX)
    text = _environment.get_template(template).render(here=here, airflow=airflow, **values)
    return HTMLResponse(text, code, headers=_HEADERS)


def _time(at: datetime | float | None) -> str:
    if at is None:
        return words.UNKNOWN
    moment = at if isinstance(at, datetime) else datetime.fromtimestamp(at, timezone.utc)
    return f"{moment.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def _figure(say: Callable[..., str]) -> Callable[..., str]:
    """A figure stays on one line with its unit."""
    return lambda *values: say(*values).replace(" ", "\u00a0")


_environment = Environment(
    loader=PackageLoader("airflow_provider_slshudi.plugins"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters |= {
    "span": _figure(words.span),
    "size": _figure(words.size),
    "rate": _figure(words.rate),
    "count": _figure(words.count),
    "amount": _figure(words.amount),
    "ago": _figure(words.ago),
    "behind": _figure(words.behind),
    "progress": words.progress,
    "no_alerts": words.no_alerts,
    "expires": words.expires,
    "time": _time,
    "segment": lambda text: quote(str(text), safe=""),
    "curve": curve,
    "coverage": coverage,
    "timeline": batches,
    "volumes": volumes,
    "advice": advice,
    "remedy": remedy,
}
