"""Cursors as texts and as integers."""

from __future__ import annotations

import pytest

from airflow_provider_slshudi.exceptions import CursorError
from airflow_provider_slshudi.sls import cursors


@pytest.mark.parametrize(
    "text",
    [
        "MTYxNDc1MDAyNzM3MzIwNTcxNA==",
        "MTYxNDc1MDAyNzM3MzIwNTcxNA",
        " MTYxNDc1MDAyNzM3MzIwNTcxNA== \n",
        "1614750027373205714",
    ],
)
def test_all_ways_to_write_a_cursor_are_the_same_number(text: str) -> None:
    assert cursors.parse(text) == 1614750027373205714


@pytest.mark.parametrize("cursor", [0, 1, 9, 10, 2**63 - 1])
def test_a_cursor_survives_its_text(cursor: int) -> None:
    assert cursors.parse(cursors.text(cursor)) == cursor


@pytest.mark.parametrize("text", ["", "begin", "-1", "1.5", "bm8=", "LTE=", "9" * 19, "9" * 20, "MTYxN\nDc1", "²"])
def test_what_is_no_cursor_is_named(text: str) -> None:
    with pytest.raises(CursorError) as error:
        cursors.parse(text)
    assert error.value.text == text


@pytest.mark.parametrize("cursor", [-1, 2**63])
def test_a_number_that_is_no_cursor_has_no_text(cursor: int) -> None:
    with pytest.raises(CursorError):
        cursors.text(cursor)
