"""A bounded look at a logstore: some of the oldest and some of the newest log groups of some shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from airflow_provider_slshudi.exceptions import SourceError
from airflow_provider_slshudi.sls.answers import Pull, Shard
from airflow_provider_slshudi.sls.decode import decode
from airflow_provider_slshudi.sls.pieces import decoded
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.sls.transport import ask_each

MOST_SHARDS = 8
"""The most shards that are looked at, chosen evenly by their ids."""
MOST_LOGS = 2_000
"""The most logs of one pull that are kept: a log group may have thousands."""


@dataclass(frozen=True)
class Sample:
    """Some of a logstore's logs.

    Attributes:
        logs: as `decode` gives them, all keys in `__rest__`.
        groups: log groups that were pulled.
        bytes: their raw bytes, also of logs that were not kept.
    """

    logs: pa.Table
    groups: int
    bytes: int


def sample(
    service: LogService, shards: Sequence[Shard], groups: int, told: Callable[[int, int], object] | None = None
) -> Sample:
    """Looks at up to `groups` log groups of each end of some of the `shards`; `told` hears of each and its log groups.

    It takes two pulls a shard at most, so the sample is bounded however large the logstore is. Raises SourceError, and
    DecodeError for a body that is no LogGroupList.

    Args:
        service: of one logstore.
        shards: all of the logstore's.
        groups: the most log groups of each end.
        told: see above; gets a shard's id and a number of log groups.
    """
    chosen = [shard.id for shard in shards[:: max(1, -(-len(shards) // MOST_SHARDS))]]

    def look(shard: int) -> list[tuple[Pull, pa.Table]]:
        pulled = list(_ends(service, shard, groups))
        if told is not None:
            told(shard, sum(pull.groups for pull, _ in pulled))
        return pulled

    taken = ask_each(look, chosen)
    pulls = [one for shard in chosen for one in taken[shard]]
    logs = pa.concat_tables([decode(b"", 0, 0, ()), *(table for _, table in pulls)])
    return Sample(logs, sum(pull.groups for pull, _ in pulls), sum(pull.raw_size for pull, _ in pulls))


def _ends(service: LogService, shard: int, groups: int) -> Iterator[tuple[Pull, pa.Table]]:
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
            _, logs = next(decoded(pull, ()))  # of a wide pull, whose logs take much memory, the first ones
            # Evenly, since the logs of a group are alike. Not a slice, which would keep all of the pull in memory.
            step = max(1, -(-logs.num_rows // MOST_LOGS))
            yield pull, logs.take(pa.array(range(0, logs.num_rows, step), pa.int64()))
