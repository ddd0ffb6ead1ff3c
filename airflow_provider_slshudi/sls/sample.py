"""A bounded look at a logstore: some of the oldest and some of the newest log groups of some shards."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from airflow_provider_slshudi.exceptions import SourceError
from airflow_provider_slshudi.sls.decode import decode
from airflow_provider_slshudi.sls.fanout import ask_each
from airflow_provider_slshudi.sls.service import LogService

MOST_SHARDS = 8
"""The most shards that are looked at, chosen evenly by their ids."""


def sample(service: LogService, groups: int) -> pa.Table:
    """Logs as `decode` gives them, all keys in `__rest__`: up to `groups` log groups of each end of some shards.

    It takes two pulls a shard at most, so the sample is bounded however large the logstore is. Raises SourceError, and
    DecodeError for a body that is no LogGroupList.
    """
    shards = [shard.id for shard in service.shards()]
    chosen = shards[:: max(1, -(-len(shards) // MOST_SHARDS))]
    taken = ask_each(lambda shard: list(_ends(service, shard, groups)), chosen)
    empty = decode(b"", 0, 0, ())
    return pa.concat_tables([empty, *(table for shard in chosen for table in taken[shard])])


def _ends(service: LogService, shard: int, groups: int) -> Iterator[pa.Table]:
    begin, end = service.begin(shard), service.end(shard)
    oldest = min(begin + groups, end)
    for first, last in ((begin, oldest), (max(oldest, end - groups), end)):
        if first < last:
            try:
                pull = service.pull(shard, first, last, last - first)
            except SourceError:
                if first == begin:
                    raise
                continue  # this cursor is a computed one, which the service need not know
            yield decode(pull.body, shard, pull.begin, ())
