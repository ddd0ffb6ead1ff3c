"""Pages as HTML: templates, filled in for one reader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from airflow_provider_slshudi.config.sources import own_name
from airflow_provider_slshudi.handover.batch_files import ROUTE
from airflow_provider_slshudi.handover.names import PREFIX, act_params
from airflow_provider_slshudi.plugins import charts
from airflow_provider_slshudi.plugins.language import READER, reader_of, say
from airflow_provider_slshudi.views import words
from airflow_provider_slshudi.views.advice import advice, remedy

_HERE = Path(__file__).parent
STATIC = {path.name: path for path in sorted((_HERE / "static").iterdir()) if path.suffix in (".css", ".js")}
"""The files beside the pages, by name."""
_HEADERS = {
    # Only what comes from here runs or is loaded, and only Airflow's own pages may frame it.
    "Content-Security-Policy": "default-src 'self'; style-src 'self'; frame-ancestors 'self'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
NONE = "–"
"""What a table shows where there is no figure."""


def page(request: Request, template: str, code: int = 200, **values: Any) -> HTMLResponse:
    """One page of a template, in the language and the time zone of who looks."""
    # Airflow may live below a path of its own.
    here = str(request.scope.get("root_path", "")).removesuffix("/")
    airflow = here.removesuffix(PREFIX)
    reader = reader_of(request)
    token = READER.set(reader)
    try:
        text = environment.get_template(template).render(here=here, airflow=airflow, reader=reader, **values)
    finally:
        READER.reset(token)
    return HTMLResponse(text, code, headers=_HEADERS)


def _translated(text: str) -> str:
    return READER.get().say(text)


def _label(text: str) -> str:
    """A text as a label: it begins with a capital."""
    said = _translated(text)
    begins_with_a_name = isinstance(text, words.Text) and text.template.startswith("{")
    return said if begins_with_a_name else said[:1].upper() + said[1:]


def _state(value: str) -> str:
    """A state of the protocol, in capitals there, as a label."""
    return _translated(value).capitalize()


def _act_label(name: str) -> str:
    """A manual action's label, by the ledger's name for it."""
    return _label(next((label for act, label in words.ACTS.items() if act.value == name), name))


def _figure(figure: Callable[..., str]) -> Callable[..., str]:
    """A figure in the reader's language; a dash where there is none."""

    def filled(value: Any, *more: Any) -> str:
        said = words.UNKNOWN if value is None else figure(value, *more)
        return NONE if said == words.UNKNOWN else _translated(said)

    return filled


def _shard(number: int, source: str) -> Markup:
    """A shard's number, and below it which shard of which logstore it is, where the source has several."""
    own = own_name(source, number)
    return Markup("{}<small>{}</small>").format(number, own) if own else escape(number)


environment = Environment(
    loader=PackageLoader("airflow_provider_slshudi.plugins"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
"""The templates' environment."""
environment.globals |= {"_": say, "none_sign": NONE, "act_labels": words.ACTS, "act_params": act_params}
environment.filters |= {
    "span": _figure(words.span),
    "size": _figure(words.size),
    "rate": _figure(words.rate),
    "count": _figure(words.count),
    "amount": _figure(words.amount),
    "ago": _figure(words.ago),
    "t": _translated,
    "label": _label,
    "state": _state,
    "act_label": _act_label,
    "progress": lambda found: _translated(words.progress(found)),
    "behind": _figure(words.behind),
    "expires": _figure(words.expires),
    "time": lambda at: NONE if at is None else READER.get().time(at),
    "short": lambda id_: str(id_).rpartition("-")[2],
    "no_alerts": lambda name: _translated(words.no_alerts(name)),
    "segment": lambda text: quote(str(text), safe=""),
    "curve": charts.curve,
    "coverage": charts.coverage,
    "batch_steps": charts.batch_steps,
    "trend_charts": charts.trend_charts,
    "freshness_chart": charts.freshness_chart,
    "advice": advice,
    "remedy": remedy,
    "shard": _shard,
    "route": lambda key: key.removeprefix(ROUTE),
}
