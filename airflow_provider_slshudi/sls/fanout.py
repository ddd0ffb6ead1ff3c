"""One question about many shards: asked side by side, since the service answers for one shard at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from airflow_provider_slshudi.sls.transport import CONNECTIONS

T = TypeVar("T")


def ask_each(ask: Callable[[int], T], shards: Iterable[int]) -> dict[int, T]:
    """Calls `ask` for every shard and returns the answers by shard; asks up to `CONNECTIONS` shards at once.

    Raises the first error as it comes, with its shard in it, and asks no further shards after that.
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
