"""A body arrives damaged, and what it held expires before it is asked for again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from aliyun.log.log_logs_raw_pb2 import LogGroupListRaw

from airflow_provider_slshudi.exceptions import DataExpired, SourceRefused
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.rows.maker import RowSpec
from airflow_provider_slshudi.sls.faults import Patience
from airflow_provider_slshudi.sls.pace import Limits
from airflow_provider_slshudi.sls.service import LogService, Pull
from airflow_provider_slshudi.spark.driver.reading import Reading, ReadSpec
from tests.pipelines import ad_events

AT_ONCE = 4


class Expiring:
    """A shard, each log group with one log. The first body is damaged; then all before `oldest` is gone."""

    requests = 0
    patience = Patience(1.0)

    def __init__(self, oldest: int) -> None:
        self._oldest, self._damaged = oldest, False

    def begin(self, shard: int) -> int:
        return self._oldest if self._damaged else 0

    def pull(self, shard: int, begin: int, end: int, **_: Any) -> Pull:
        if begin < self.begin(shard):
            raise SourceRefused("gone", project="p", logstore="l", shard=shard, cursor=begin)
        groups = LogGroupListRaw()
        following = min(begin + AT_ONCE, end)
        for number in range(begin, following):
            log = groups.LogGroups.add().Logs.add()
            log.Time = 1_700_000_000 + number
            content = log.Contents.add()
            content.Key, content.Value = "event_id", b"%d" % number
        body = groups.SerializeToString()
        if not self._damaged:
            self._damaged, body = True, b"\xff" + body[1:]
        return Pull(shard, begin, following, following - begin, len(body), body)


def reading(tmp_path: Path, service: Expiring, skips: bool) -> Reading:
    rows = RowSpec.of(ad_events(tmp_path / "table"))
    spec = ReadSpec(lambda: cast(LogService, service), "events", rows, {0: Limits(1e9, 1e3)}, skips)
    return Reading(spec, [Range(0, 0, 10)])


@pytest.mark.parametrize("oldest", [2, 4, 6])
def test_what_expires_before_a_damaged_body_comes_again_is_lost(tmp_path: Path, oldest: int) -> None:
    read = reading(tmp_path, Expiring(oldest), skips=True)
    # The pull after the damaged one may have been answered before.
    rows = sum(item.logs.num_rows for item in read.rows())
    done = read.done()
    assert sum(part.rows for part in done) == rows
    assert [part.rows for part in done if not part.lost] == [part.end - part.begin for part in done if not part.lost]
    assert sum(part.end - part.begin for part in done) == 10
    assert sum(part.end - part.begin for part in done if part.lost) >= min(oldest, AT_ONCE)


def test_where_losses_are_not_accepted_it_fails(tmp_path: Path) -> None:
    with pytest.raises(DataExpired):
        list(reading(tmp_path, Expiring(4), skips=False).rows())
