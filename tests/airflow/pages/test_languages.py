"""The pages in Chinese: no text is left out of the catalogue, and none is in it that nothing says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from jinja2.ext import extract_from_ast
from starlette.requests import Request

import airflow_provider_slshudi
from airflow_provider_slshudi.handover.names import BACKFILL, DRY_RUN, Act
from airflow_provider_slshudi.ledger.records import Kind, State
from airflow_provider_slshudi.plugins.language import CHINESE, Reader, catalogue, reader_of
from airflow_provider_slshudi.plugins.render import environment
from airflow_provider_slshudi.views import advice, calendar, cost, history, sides, standing, words
from airflow_provider_slshudi.views.words import Text

ROOT = Path(airflow_provider_slshudi.__file__).parent
FIELD = re.compile(r"\{(\w+)[^}]*\}")
SAID = ("plugins", "views")
"""The rooms whose sentences pages show."""


def in_templates() -> Iterator[str]:
    for name in environment.list_templates(extensions=["html"]):
        source, _, _ = environment.loader.get_source(environment, name)  # type: ignore[union-attr]
        for _, _, text in extract_from_ast(environment.parse(source), gettext_functions=("_",)):
            if isinstance(text, tuple):
                yield from filter(None, text)
            elif text:
                yield text


def in_code() -> Iterator[str]:
    for room in SAID:
        for path in sorted((ROOT / room).glob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                match node:
                    case ast.Call(
                        func=ast.Name(id="Text" | "Figure" | "say"), args=[ast.Constant(value=str(text)), *_]
                    ):
                        yield text


def of_enums() -> Iterator[str]:
    yield from (found.text for found in (*advice.ADVICE.values(), advice.UNKNOWN))
    yield from (need.value for need in standing.Need)
    yield from (verdict.value for verdict in sides.Verdict)
    yield from (sides.ARCHIVED, sides.ABSENT, sides.LEFT_OUT, *sides._MEANING.values())
    for act in Act:
        yield from (act.does, act.last_commit, words.ACTS[act])
    yield from (kind.value for kind in Kind)
    yield from (state.value for state in State)
    yield from history._STEPS.values()
    yield from ("open", "append", cost.TASKS, "commit", BACKFILL, DRY_RUN)
    yield from (template for _, template in words.SPANS)
    yield from (layout.label for layout in calendar._LAYOUTS.values())
    yield from ("readwrite", "readonly", "gone")


def msgids() -> set[str]:
    return {text for text in (*in_templates(), *in_code(), *of_enums()) if re.search(r"[^\s/-]", FIELD.sub("", text))}


def test_every_text_has_a_chinese_one_and_no_chinese_text_is_left_over() -> None:
    assert (msgids() - set(catalogue(CHINESE)), set(catalogue(CHINESE)) - msgids()) == (set(), set())


def test_templates_say_nothing_that_is_not_translated() -> None:
    for name in environment.list_templates(extensions=["html"]):
        source, _, _ = environment.loader.get_source(environment, name)  # type: ignore[union-attr]
        filled = re.sub(r"{%.*?%}|{{.*?}}", "", source, flags=re.DOTALL)
        attributes = re.findall(r'(?:title|aria-label|placeholder)="([^"]*)"', filled)
        words_shown = re.findall("[A-Za-z]{2,}", " ".join([re.sub("<[^>]*>", "", filled), *attributes]))
        assert set(words_shown) <= {"DAG"}, name


def test_a_translation_names_the_values_of_its_template() -> None:
    named = {english: chinese for english, chinese in catalogue(CHINESE).items() if "{" in english}
    assert {
        english for english, chinese in named.items() if set(FIELD.findall(english)) != set(FIELD.findall(chinese))
    } == set()


def request(**headers: str) -> Request:
    return Request({"type": "http", "headers": [(name.encode(), text.encode()) for name, text in headers.items()]})


@pytest.mark.parametrize(
    ("headers", "language", "zone"),
    [
        ({}, "en", "UTC"),
        ({"accept-language": "fr-CA,fr;q=0.9"}, "en", "UTC"),
        ({"accept-language": "zh-TW,zh;q=0.9,en;q=0.8"}, "zh-CN", "UTC"),
        (
            {"accept-language": "zh", "cookie": "slshudi_language=en; slshudi_zone=Asia%2FShanghai"},
            "en",
            "Asia/Shanghai",
        ),
        ({"cookie": "slshudi_zone=..%2F..%2Fetc%2Fpasswd"}, "en", "UTC"),
        ({"cookie": "slshudi_zone=Asia"}, "en", "UTC"),
        ({"cookie": f"slshudi_zone={'a/' * 400}"}, "en", "UTC"),
    ],
)
def test_language_and_zone_are_airflows_or_else_the_browsers(headers: dict[str, str], language: str, zone: str) -> None:
    found = reader_of(request(**headers))
    assert (found.language, found.zone_name) == (language, zone)


def test_a_sentence_says_its_values_in_the_readers_language_and_zone() -> None:
    at = datetime(2026, 1, 31, 20, 0, tzinfo=timezone.utc)
    sentence = Text("no run has looked at the service since {at}", at=words.moment(at))
    assert sentence == "no run has looked at the service since 2026-01-31 20:00 UTC"
    shanghai = Reader(CHINESE, "Asia/Shanghai", timezone(timedelta(hours=8)))
    assert shanghai.say(sentence) == "自 2026-02-01\u00a004:00 起没有执行查看过日志服务"
    assert shanghai.say(words.ago(at, at + timedelta(seconds=200))) == "3\u00a0分\u2060钟\u00a020\u00a0秒\u2060前"
