"""The language and the time zone of who looks: Airflow's own choice, which the pages' script keeps in cookies.

A catalogue is a JSON object from English to the other language, as those of Airflow's own pages are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timezone, tzinfo
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from fastapi import Request
from markupsafe import Markup

from airflow_provider_slshudi.views.words import TIME, Figure, Text

ENGLISH, CHINESE = "en", "zh-CN"
LANGUAGE_COOKIE, ZONE_COOKIE = "slshudi_language", "slshudi_zone"
_LONGEST_ZONE = 64
"""Characters; a path of hundreds of parts is more than ZoneInfo looks for."""
_FOLDER = Path(__file__).parent / "locales"
_SPACE, _JOINER = "\u00a0", "\u2060"
_WITHIN = re.compile("(?<=[\u4e00-\u9fff])(?=[\u4e00-\u9fff])")
"""Where a browser would break a line between two Chinese characters."""


@cache
def catalogue(language: str) -> Mapping[str, str]:
    """The translations of a language, by the English text or template; empty for English."""
    file = _FOLDER / f"{language}.json"
    return json.loads(file.read_text(encoding="utf-8")) if language != ENGLISH else {}


@dataclass(frozen=True)
class Reader:
    """Who looks at a page: the language, and the time zone by its name."""

    language: str = ENGLISH
    zone_name: str = "UTC"
    zone: tzinfo = field(default=timezone.utc)

    def say(self, text: str) -> str:
        """A text in the reader's language; one that the catalogue does not have stays as it is."""
        if not isinstance(text, Text):
            return catalogue(self.language).get(text, text)
        if text.template == TIME:
            said = self.local(text.values["at"]).strftime("%Y-%m-%d %H:%M")
        else:
            said = self.fill(text.template, text.values)
        return _WITHIN.sub(_JOINER, said.replace(" ", _SPACE)) if isinstance(text, Figure) else said

    def fill(self, template: str, values: Mapping[str, Any]) -> str:
        """A template in the reader's language, with its values, those that are texts translated; HTML if a value is."""
        said = catalogue(self.language).get(template, template)
        if any(isinstance(value, Markup) for value in values.values()):
            said = Markup(said)  # noqa: S704 - templates are ours; it escapes the values that are no HTML
        return said.format(
            **{name: self.say(value) if type(value) in (Text, Figure) else value for name, value in values.items()}
        )

    def local(self, at: datetime | float) -> datetime:
        """A time in the reader's zone; numbers are unix seconds."""
        moment = at if isinstance(at, datetime) else datetime.fromtimestamp(at, timezone.utc)
        return moment.astimezone(self.zone)

    def time(self, at: datetime | float) -> Markup:
        """A time as Airflow's pages show it."""
        moment = self.local(at)
        return Markup('<time datetime="{}" title="{} {}">{}</time>').format(
            moment.isoformat(), moment.isoformat(" ", "milliseconds"), self.zone_name, f"{moment:%Y-%m-%d %H:%M:%S}"
        )


def reader_of(request: Request) -> Reader:
    """The reader by the cookies of the pages' script; before it has run, by the browser's languages, and UTC."""
    preferred = request.cookies.get(LANGUAGE_COOKIE) or request.headers.get("accept-language", "")
    codes = [code.strip().lower() for code in preferred.split(",")]
    first = next((code for code in codes if code.startswith(("en", "zh"))), ENGLISH)
    language = CHINESE if first.startswith("zh") else ENGLISH
    name = unquote(request.cookies.get(ZONE_COOKIE, "UTC"))
    try:
        return Reader(language, name, ZoneInfo(name[:_LONGEST_ZONE]))
    except (KeyError, ValueError, OSError):  # a browser may send any text
        return Reader(language)


_NO_READER = Reader()
READER: ContextVar[Reader] = ContextVar("reader", default=_NO_READER)
"""Who looks at the page that is being made."""


def say(template: str, **values: Any) -> str:
    """A template in the language of who looks, with its values."""
    return READER.get().fill(template, values)
