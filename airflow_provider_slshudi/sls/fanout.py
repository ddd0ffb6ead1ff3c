"""One question about many shards, or many services: asked side by side, since each answer takes a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from airflow_provider_slshudi.sls.transport import CONNECTIONS

T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)
_ANSWERS_AT_ONCE = 8


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


def answers(ask: Callable[[Key], T], keys: Sequence[Key], seconds: float) -> dict[Key, T]:
    """What `ask` gives for each key, some asked at a time; without those that have not answered after `seconds`.

    Where those that are asked hang, others get their turn all the same, in half of that time. The threads are daemons,
    for which no process waits at its end.
    """
    found, slots = dict[Key, T](), threading.Semaphore(_ANSWERS_AT_ONCE)
    until, turn = time.monotonic() + seconds, seconds / 2 / max(1, len(keys))

    def run(key: Key) -> None:
        try:
            found[key] = ask(key)
        finally:
            slots.release()

    threads = []
    for key in keys:
        # Without a free slot there is one more at a time from now on.
        slots.acquire(timeout=turn)
        threads.append(threading.Thread(target=run, args=(key,), name=f"slshudi-ask-{key}", daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return dict(found)
