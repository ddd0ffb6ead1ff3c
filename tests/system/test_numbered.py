"""Row keys and sequence numbers: the same texts whichever way they are made."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_slshudi.system.native import by_arrow, numbered
from tests.needs import needs_native

LONGS = st.integers(-(2**63), 2**63 - 1)
INTS = st.integers(-(2**31), 2**31 - 1)


def test_numbers_stand_behind_the_prefix() -> None:
    made = numbered("7", "-", pa.array([100, 100, 101], pa.int64()), pa.array([0, 1, 0], pa.int32()))
    assert made.to_pylist() == ["7-100-0", "7-100-1", "7-101-0"]


def test_no_rows_make_no_texts() -> None:
    assert numbered("7", "-", pa.array([], pa.int64())).to_pylist() == []


@needs_native
@given(st.text(max_size=9), st.sampled_from("-_é"), st.lists(st.tuples(LONGS, INTS), max_size=40), st.integers(0, 5))
def test_both_ways_make_the_same_texts(prefix: str, separator: str, pairs: list[tuple[int, int]], cut: int) -> None:
    first = pa.array([pair[0] for pair in pairs], pa.int64()).slice(cut)
    second = pa.chunked_array([pa.array([pair[1] for pair in pairs], pa.int32()).slice(cut)])
    made = numbered(prefix, separator, first, second)
    made.validate(full=True)
    assert made.equals(by_arrow(prefix, separator, first, second))
    assert made.to_pylist() == [f"{prefix}{separator}{a}{separator}{b}" for a, b in pairs[cut:]]
