"""Changes of a task in bounded memory: what is merged early, or waits on the disk, makes the same rows."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_slshudi.hudi.files import merge, row_changes
from airflow_provider_slshudi.hudi.files.merge import PLACE, MergeSpec, after, after_existing, fold, reduce_rows
from airflow_provider_slshudi.hudi.files.row_changes import BUCKET, PARTITION, Changes, Part
from airflow_provider_slshudi.hudi.schema import RECORD_KEY

SPECS = {
    "event time": MergeSpec(("k",), "at", "gone", False, 2),
    "commit time": MergeSpec(("k",), None, "gone", False, 2),
    "partial": MergeSpec(("k",), None, None, True, 2),
    "partial, event time": MergeSpec(("k",), "at", None, True, 2),
}
SCHEMA = pa.schema(
    [
        *(("k", pa.string()), ("at", pa.int64()), ("gone", pa.bool_()), ("v", pa.string()), ("w", pa.int64())),
        *zip(PLACE, (pa.int32(), pa.int64(), pa.int32()), strict=True),
        *((RECORD_KEY, pa.string()), (PARTITION, pa.string()), (BUCKET, pa.int32())),
    ]
)


@st.composite
def batches(draw: st.DrawFn) -> pa.Table:
    """Rows of two shards in the order of their places, with few keys, ordering values and values."""
    rows = []
    for number in range(draw(st.integers(1, 60))):
        key = draw(st.sampled_from("hhhhab"))
        value, other = draw(st.none() | st.just(f"v{number}")), draw(st.none() | st.just(number))
        gone, folder = draw(st.sampled_from([None, None, True])), draw(st.sampled_from(["", "p=1"]))
        place = (draw(st.integers(0, 1)), number // 3, number % 3)
        rows.append((key, draw(st.integers(0, 4)), gone, value, other, *place, key, folder, ord(key) % 2))
    rows.sort(key=lambda row: row[5:8])
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)],
        schema=SCHEMA,
    )


def merged(parts: Iterable[Part], spec: MergeSpec) -> list[tuple[Any, ...]]:
    rows, keys = fold(parts, spec)
    assert rows["k"].to_pylist() == keys.to_pylist()
    return sorted((tuple(row.values())[:5] for row in rows.to_pylist()), key=lambda row: row[0])


def by_bucket(rows: pa.Table) -> dict[tuple[str, int], pa.Table]:
    places = list(zip(rows[PARTITION].to_pylist(), rows[BUCKET].to_pylist(), strict=True))
    return {place: rows.filter(pa.array([other == place for other in places])) for place in dict.fromkeys(places)}


def part(rows: pa.Table) -> Part:
    return rows, rows[RECORD_KEY].combine_chunks()


@pytest.fixture(scope="module", params=[1, 600, 2_000])
def little_memory(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, share in (("BUFFER_BYTES", 1), ("PIECE_BYTES", 6), ("WINDOW_BYTES", 2)):
            patch.setattr(row_changes, name, request.param // share)
        patch.setattr(merge, "FOLD_BYTES", request.param // 3)
        yield


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@settings(max_examples=12)
@given(rows=batches(), seed=st.integers(0, 1 << 20), step=st.integers(1, 9))
def test_rows_merge_as_if_all_were_in_memory(spec: MergeSpec, rows: pa.Table, seed: int, step: int) -> None:
    packets = [rows.slice(begin, step) for begin in range(0, rows.num_rows, step)]
    random.Random(seed).shuffle(packets)
    with Changes(spec) as kept:
        for packet in packets:
            kept.add(packet)
        assert kept.count == rows.num_rows
        found = {(partition, bucket): merged(parts, spec) for partition, bucket, parts in kept.buckets()}
    expected = {}
    for place, of_bucket in by_bucket(rows).items():
        left, _ = reduce_rows(*part(of_bucket), spec)
        expected[place] = sorted((tuple(row.values())[:5] for row in left.to_pylist()), key=lambda row: row[0])
    assert found == expected


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("spec", [SPECS["partial"], SPECS["partial, event time"]], ids=["partial", "with event time"])
@settings(max_examples=25)
@given(
    rows=batches(), step=st.integers(1, 9), there=st.lists(st.sampled_from("hab"), unique=True), at=st.integers(0, 4)
)
def test_partial_updates_in_parts_come_after_what_is_there(
    spec: MergeSpec, rows: pa.Table, step: int, there: list[str], at: int
) -> None:
    rows = rows.sort_by([(name, "ascending") for name in PLACE])
    existing = pa.table(
        {
            "k": there,
            "at": [at] * len(there),
            "gone": [None] * len(there),
            "v": ["t"] * len(there),
            "w": [None] * len(there),
        },
        schema=pa.schema(list(SCHEMA)[:5]),
    )
    keys = existing["k"].combine_chunks()
    rows = rows.drop_columns([PARTITION, BUCKET])
    whole = after(existing, keys, rows.drop_columns([RECORD_KEY]), rows[RECORD_KEY].combine_chunks())
    parts = [rows.slice(begin, step) for begin in range(0, rows.num_rows, step)]
    cut = ((piece.drop_columns([RECORD_KEY]), piece[RECORD_KEY].combine_chunks()) for piece in parts)
    assert merged(after_existing(cut, existing, keys), spec) == merged([whole], spec)
