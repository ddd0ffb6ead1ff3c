"""A few drawn histories, and guards left out that they find; `python -m tests.downstream.histories` is the long run."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.downstream.histories import drawn

_FOUND = [
    ("idle-shards", 19),
    ("ledgers-clock", 9),
    ("before-folding", 1),
    ("new-shards", 11),
    ("expired-logs", 27),
    ("gone-shards", 23),
    ("untold-losses", 152),
]
"""Guards, and the seed of a history that finds that it is left out."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", [1, 2, 9, 1047])
def test_a_partition_is_complete_neither_too_early_nor_too_late(seed: int) -> None:
    history = drawn(seed)
    assert not history.faults, f"seed {seed}: {history.faults[0]}"
    assert history.figures["commits"]


@pytest.mark.parametrize(("planted", "seed"), _FOUND)
def test_a_guard_that_is_left_out_is_found(planted: str, seed: int) -> None:
    assert drawn(seed, planted).faults
