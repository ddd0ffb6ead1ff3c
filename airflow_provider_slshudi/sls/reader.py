"""Reading a pinned range to its end: one pull in flight while the caller works on the one before."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from airflow_provider_slshudi.exceptions import (
    DataExpired,
    SourceCorrupt,
    SourceError,
    SourceRefused,
    SourceUnavailable,
)
from airflow_provider_slshudi.ranges import Range
from airflow_provider_slshudi.sls.faults import retry
from airflow_provider_slshudi.sls.service import LogService, Pull


def read(service: LogService, range: Range) -> Iterator[Pull]:
    """Yield pulls that together hold exactly the log groups of `range`; ends at `range.end` and nowhere else.

    At most two pulls are in memory: the caller's and the next one. An empty answer inside the range is repeated
    within the service's budget, since the range's end existed when it was pinned. Raises DataExpired for log groups
    that are gone (its `pipeline` is the source `project/logstore`), SourceCorrupt for a gap without that reason, and
    what `LogService.pull` raises.
    """
    executor = ThreadPoolExecutor(1, thread_name_prefix="sls-pull")
    try:
        pending = executor.submit(_pull, service, range, range.begin)
        while True:
            pull = pending.result()
            if pull.next == range.end:
                yield pull
                return
            pending = executor.submit(_pull, service, range, pull.next)
            yield pull
            del pull  # the caller has let go of it by now, so that the pull in flight is the second one, not the third
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


def _pull(service: LogService, range: Range, begin: int) -> Pull:
    def attempt() -> Pull:
        pull = service.pull(range.shard, begin, range.end)
        if pull.next == begin:
            message = f"no log groups before the end {range.end} of a pinned range"
            raise service.error(SourceUnavailable, message, range.shard, begin)
        return pull

    try:
        pull = retry(service.budget, attempt)
    except SourceRefused as refused:
        raise _lost(service, range, begin, refused) from refused
    if pull.next != begin + pull.groups:
        message = f"{pull.groups} log groups but the next cursor {pull.next}: log groups are missing"
        raise _lost(service, range, begin, service.error(SourceCorrupt, message, range.shard, begin))
    return pull


def _lost(service: LogService, range: Range, begin: int, otherwise: SourceError) -> Exception:
    """DataExpired where the oldest log group kept is beyond `begin`; else, or where that is unknown, `otherwise`."""
    try:
        oldest = service.begin(range.shard)
    except SourceError:
        return otherwise
    if oldest <= begin:
        return otherwise
    return DataExpired(f"{service.project}/{service.logstore}", range.shard, begin, min(oldest, range.end))
