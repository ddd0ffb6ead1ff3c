"""One question about many shards: asked side by side, since the service answers for one shard at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from airflow_provider_slshudi.sls.transport import CONNECTIONS

T = TypeVar("T")


def ask_each(ask: Callable[[int], T], shards: Iterable[int]) -> dict[int, T]:
    """`ask` of every shard, by shard; as many at once as one transport keeps connections.

    The first error is raised as it comes, with its shard in it, and what was not asked by then is not asked any more.
    """
    left = list(shards)
    if len(left) < 2:
        return {shard: ask(shard) for shard in left}
    executor = ThreadPoolExecutor(min(CONNECTIONS, len(left)), thread_name_prefix="sls-ask")
    try:
        asked = {executor.submit(ask, shard): shard for shard in left}
        return {asked[answer]: answer.result() for answer in as_completed(asked)}
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
