"""What becomes of a world's shards, and of logs that are too old for them."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.exact.counts import events
from tests.local.sdk import groups_of
from tests.scenarios import PROJECT
from tests.worlds.draw import Shards
from tests.worlds.exits import skip_what_expired
from tests.worlds.place import DAY_SECONDS, LOGSTORE, SPLIT_AT, Line

FOR_EVER, A_DAY = 3650, 1
_WHOLE_DAY_SECONDS = DAY_SECONDS + 1.5


def change_shards(line: Line, read: Callable[[], None]) -> None:
    """Does to the logstore what the world has drawn; what is put before is on shards that may be gone when it is read.

    Args:
        line: the world's pipeline.
        read: carries a whole run out.
    """
    drawn = line.drawn.shards
    if drawn is Shards.NONE:
        return
    before = line.logs.number
    line.put(20)
    if drawn is Shards.EDGE:
        time.sleep(DAY_SECONDS)
        if line.rng.random() < 0.5:
            skip_what_expired(line)
    elif drawn is Shards.EXPIRED:
        _expire_all(line, before)
    elif drawn is Shards.MERGED:
        _merge(line)
    else:
        line.client.split_shard(PROJECT, LOGSTORE, 0, SPLIT_AT)
        if drawn is not Shards.SPLIT:
            _delete_parent(line, before, read)


def expire_oldest(line: Line) -> None:
    """Drops logs that a batch has planned and not read: those of a day ago, and on a busy machine all of them."""
    unread = {f"event-{number}" for number in range(line.logs.number)} - set(events(line.work("edge")))
    line.client.update_logstore(PROJECT, LOGSTORE, ttl=A_DAY)
    shards = line.client.list_shards(PROJECT, LOGSTORE).get_shards_info()
    held = set().union(*(_held(line, shard["shardID"]) for shard in shards))
    line.client.update_logstore(PROJECT, LOGSTORE, ttl=FOR_EVER)
    line.logs.excused |= unread - held


def _expire_all(line: Line, before: int) -> None:
    line.client.update_logstore(PROJECT, LOGSTORE, ttl=A_DAY)
    time.sleep(_WHOLE_DAY_SECONDS)
    line.logs.excused = {f"event-{number}" for number in range(before, line.logs.number)}
    line.client.update_logstore(PROJECT, LOGSTORE, ttl=FOR_EVER)


def _merge(line: Line) -> None:
    """Merges two shards; a logstore of upserts has only one, which is split first, with logs that nobody has read."""
    if line.drawn.kind.upserts:
        line.client.split_shard(PROJECT, LOGSTORE, 0, SPLIT_AT)
        line.put(20)
    line.client.merge_shard(PROJECT, LOGSTORE, 1 if line.drawn.kind.upserts else 0)


def _delete_parent(line: Line, before: int, read: Callable[[], None]) -> None:
    if line.drawn.shards is Shards.SPLIT_READ_GONE:
        read()
    else:
        line.logs.excused = {id_ for id_ in _held(line, 0) if int(id_.partition("-")[2]) >= before}
    line.client.delete_shard(PROJECT, LOGSTORE, 0)


def _held(line: Line, shard: int) -> set[str]:
    """The events that a shard holds."""
    logs = (log for group in groups_of(line.client, PROJECT, LOGSTORE, shard) for log in group.Logs)
    return {pair.Value.decode() for log in logs for pair in log.Contents if pair.Key == "event_id"}
