"""What the service's error codes mean for a caller, and the one loop that tries again."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from airflow_provider_slshudi.exceptions import SourceCorrupt, SourceError, SourceRefused, SourceUnavailable
from airflow_provider_slshudi.exceptions import SourceThrottled as Throttled

log = logging.getLogger(__name__)
T = TypeVar("T")

NETWORK = "LogRequestError"
"""The code that the SDK gives to a request that got no answer."""

_FIRST_DELAY, _LARGEST_DELAY = 0.2, 10.0

# https://www.alibabacloud.com/help/en/sls/developer-reference/error-codes; a code that is not here goes by its status.
_CLASSES: dict[str, type[SourceError]] = {
    "InternalServerError": SourceUnavailable,
    "RequestTimeout": SourceUnavailable,
    "ServerBusy": Throttled,
    "MetaOperationQpsLimitExceeded": Throttled,
    "ReadQuotaExceed": Throttled,
    "WriteQuotaExceed": Throttled,
    "ShardReadQuotaExceed": Throttled,
    "ShardWriteQuotaExceed": Throttled,
}

_ADVICE = {
    "SignatureNotMatch": "check the access key secret, and that nothing on the way rewrites the request",
    "Unauthorized": "check the access key id, its permissions, and whether a temporary token has expired",
    "InvalidAccessKeyId": "check the access key id",
    "RequestTimeExpired": "set this machine's clock: it is more than 15 minutes off",
    "ProjectNotExist": "check the project's name and that the endpoint is of its region",
    "ProjectForbidden": "the project is disabled or frozen: look at its state in the console",
    "LogStoreNotExist": "check the logstore's name",
    "ShardNotExist": "the shard was deleted after its retention; refresh the shards",
    "InvalidCursor": "the cursor is not of this shard or no longer known",
}


def error_class(code: str, status: int) -> type[SourceError]:
    """The error that an answer of the service is; `status` is its HTTP status, or 200 where there was none."""
    if code in _CLASSES:
        return _CLASSES[code]
    if status == 429 or (status == 403 and "QuotaExceed" in code):
        return Throttled
    if status >= 500:
        return SourceUnavailable
    if status >= 400:
        return SourceRefused
    return SourceUnavailable if code == NETWORK else SourceCorrupt


def advice(code: str) -> str:
    """What to do about `code`, as the end of a sentence; empty where there is nothing to add."""
    return f": {_ADVICE[code]}" if code in _ADVICE else ""


def retry(budget: float, attempt: Callable[[], T]) -> T:
    """`attempt()`, repeated while it raises SourceUnavailable, with growing jittered pauses, for `budget` seconds.

    The last error is raised as it is; every other error at once.
    """
    deadline = time.monotonic() + budget
    ceiling = _FIRST_DELAY
    while True:
        try:
            return attempt()
        except SourceUnavailable as error:
            delay = random.uniform(ceiling / 2, ceiling)  # noqa: S311 - spreads clients, guards nothing
            if time.monotonic() + delay > deadline:
                raise
            log.warning("%s; trying again in %.1f s", error, delay)
        time.sleep(delay)
        ceiling = min(2 * ceiling, _LARGEST_DELAY)
