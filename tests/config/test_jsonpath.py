"""Paths into JSON values: one place each."""

from __future__ import annotations

import pytest

from airflow_provider_slshudi.config.values import parse_path


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("$.user", ("user",)),
        ("$.items[0].price", ("items", 0, "price")),
        ("$[12][0]", (12, 0)),
        ("$['odd name'].x-y", ("odd name", "x-y")),
        ("$['a.b[0]']", ("a.b[0]",)),
    ],
)
def test_a_path_is_read_step_by_step(text: str, steps: tuple[str | int, ...]) -> None:
    assert parse_path(text) == steps


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("user.id", r"begins with \$"),
        ("$", "at least one step"),
        ("$.items[*]", r"at '\[\*\]': .*one place"),
        ("$..id", r"at '\.\.id'"),
        ("$.a[-1]", r"at '\[-1\]'"),
        ("$.a[", r"at '\['"),
        ("$.a b", "at ' b'"),
        ("$['']", r"at \"\[''\]\""),
    ],
)
def test_what_names_no_single_place_is_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_path(text)
