"""The tasks of a batch share what may be read of a shard."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_slshudi.config.sources import Source
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.planning.windows import split
from airflow_provider_slshudi.spark.driver.reading import SHARDS_AT_ONCE, read_limits, shard_limits


@given(sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=12), tasks=st.integers(1, 8))
def test_all_tasks_that_read_a_shard_take_together_what_the_pipeline_says(sizes: list[int], tasks: int) -> None:
    source = Source(
        project="p", logstore="l", read_bytes_per_second="5MB", reads_per_second=40, total_bytes_per_second="8MB"
    )
    work = split([Range(shard, 0, size) for shard, size in enumerate(sizes)], {}, tasks, 2**20)
    limits = read_limits(source, work)
    taken: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for part in work:
        for shard in {item.shard for item in part}:
            taken[shard][0] += limits[shard].bytes_per_second
            taken[shard][1] += limits[shard].reads_per_second
            assert limits[shard].total_bytes_per_second == 8e6 / len(work)
        own = shard_limits(limits, part)
        assert {shard: limit.bytes_per_second for shard, limit in own.items()} == {
            shard: limits[shard].bytes_per_second for shard in own
        }
        at_once = sorted(limit.total_bytes_per_second or 0 for limit in own.values())[-SHARDS_AT_ONCE:]
        assert sum(at_once) == pytest.approx(8e6 / len(work))
    assert set(taken) == set(limits) == set(range(len(sizes)))
    for bytes_, reads in taken.values():
        assert bytes_ == pytest.approx(5e6) and reads == pytest.approx(40)


def test_without_a_total_there_is_none() -> None:
    limits = read_limits(Source(project="p", logstore="l"), [[Range(0, 0, 1)]])
    assert (limits[0].bytes_per_second, limits[0].total_bytes_per_second) == (10_000_000, None)
