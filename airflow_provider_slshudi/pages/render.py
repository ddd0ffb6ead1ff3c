"""Templates to pages: every value is escaped, and figures are written as people read them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from airflow_provider_slshudi.pages import PREFIX, drawings
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
    loader=PackageLoader("airflow_provider_slshudi.pages"),
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
    "expires": words.expires,
    "time": _time,
    "segment": lambda text: quote(str(text), safe=""),
    "curve": drawings.curve,
    "coverage": drawings.coverage,
    "timeline": drawings.batches,
    "volumes": drawings.volumes,
    "advice": advice,
    "remedy": remedy,
}
