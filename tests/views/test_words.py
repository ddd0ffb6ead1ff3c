"""Figures as people read them."""

from __future__ import annotations

from copy import deepcopy
from datetime import datetime, timedelta, timezone

import pytest

from airflow_provider_slshudi.handover.names import Act
from airflow_provider_slshudi.views import words
from airflow_provider_slshudi.views.words import ACTS, Text

NOW = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "not known"),
        (0, "0.0 s"),
        (9.96, "10.0 s"),
        (42, "42 s"),
        (200, "3 min 20 s"),
        (3_600, "1 h"),
        (3_601, "1 h"),
        (187_200, "2 d 4 h"),
        (-90, "-1 min 30 s"),
    ],
)
def test_spans(seconds: float | None, said: str) -> None:
    assert words.span(seconds) == said


@pytest.mark.parametrize(
    ("count", "said"),
    [(None, "not known"), (0, "0 B"), (999, "999 B"), (1_000, "1.00 kB"), (12_345, "12.3 kB"), (999_600, "1.00 MB")],
)
def test_sizes(count: int | None, said: str) -> None:
    assert words.size(count) == said
    assert words.rate(count) == (said if count is None else f"{said}/s")


@pytest.mark.parametrize(
    ("number", "said"),
    [(None, "not known"), (0, "0"), (0.21349, "0.213"), (12.34, "12.3"), (999.6, "1,000"), (123_456.7, "123,457")],
)
def test_amounts(number: float | None, said: str) -> None:
    assert words.amount(number) == said


def test_times() -> None:
    assert words.ago(NOW - timedelta(seconds=200), NOW) == "3 min 20 s ago"
    assert words.ago(NOW.timestamp() - 42, NOW) == "42 s ago"
    assert words.ago(NOW + timedelta(seconds=42), NOW) == "in 42 s"
    assert words.ago(None, NOW) == "not known"


def test_a_sentence_keeps_its_template_and_a_copy_of_it_is_plain() -> None:
    sentence = Text("{dag} failed at {step}", dag="{x}", step="plan")
    assert (sentence, sentence.template, sentence.values["step"]) == (
        "{x} failed at plan",
        "{dag} failed at {step}",
        "plan",
    )
    assert type(deepcopy(sentence)) is str and deepcopy(sentence) == sentence


def test_every_act_has_a_label() -> None:
    assert set(ACTS) == set(Act)
