"""What the service's error codes mean for a caller, in one table, and the one loop that tries again."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from airflow_provider_slshudi.exceptions import (
    SourceCorrupt,
    SourceError,
    SourceRefused,
    SourceUnavailable,
    TerminalError,
)
from airflow_provider_slshudi.exceptions import SourceThrottled as Throttled

log = logging.getLogger(__name__)
T = TypeVar("T")

_FIRST_DELAY, _LARGEST_DELAY = 0.2, 10.0

NEXT: dict[type[SourceError], str] = {
    SourceUnavailable: "it is tried again, from the same cursor",
    Throttled: "it is tried again more slowly, from the same cursor",
    SourceCorrupt: "it was not believed and is asked for again, from the same cursor",
    SourceRefused: "it is not tried again before something is changed",
}
"""What happens after an error of each class, as the end of a message."""

UNREACHABLE = "Unreachable"
"""The code of a request that reached no server: its connection was refused, or no name server knows the host."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a caller waits for the service.

    Attributes:
        seconds: how long a call may take with its retries.
        knocks: whether a call that reaches no server is repeated, too.
    """

    seconds: float
    knocks: bool = True

    def next(self, kind: type[SourceError]) -> str:
        """What happens after an error that is not retried any more, as the end of a message."""
        return NEXT[kind] if self.knocks or issubclass(kind, TerminalError) else "try it again later"


TASK = Patience(60.0)
"""A task's: services come back, and no person sits in front of it."""

PERSON = Patience(3.0, knocks=False)
"""A person's, at a command or a form: if no server answers there, the endpoint is wrong as a rule."""

_WAY = "check the endpoint and the way to it (http_proxy, https_proxy)"

_NO_SERVICE = "check that the endpoint is one of the log service"
# Codes of answers that are not the log service's: another server's page.
_ELSEWHERE = ("HTTP 3", "HTTP 4")
_BUG = "this request should never have been sent: report it with the request id"

# Every code of https://www.alibabacloud.com/help/en/sls/developer-reference/error-codes and of the operations' own
# pages, the kinds of faults without an answer, and what to do. Where a code is not here, the HTTP status decides.
RULES: dict[str, tuple[type[SourceError], str]] = {
    # Tried again, each time after a longer pause.
    "InternalServerError": (SourceUnavailable, ""),
    "RequestTimeout": (SourceUnavailable, ""),
    UNREACHABLE: (SourceUnavailable, _WAY),
    "ConnectTimeout": (SourceUnavailable, _WAY),
    "ConnectionFault": (SourceUnavailable, _WAY),
    "ReadTimeout": (SourceUnavailable, ""),
    "AnswerCut": (SourceUnavailable, ""),
    "AnswerTooSlow": (SourceUnavailable, ""),
    "CredentialsUnavailable": (SourceUnavailable, "check where the connection's credentials come from"),
    # Tried again, more slowly.
    "ServerBusy": (Throttled, ""),
    "MetaOperationQpsLimitExceeded": (Throttled, ""),
    "ReadQuotaExceed": (Throttled, "lower the pipeline's pace or raise the project's quota"),
    "WriteQuotaExceed": (Throttled, ""),
    "ShardReadQuotaExceed": (Throttled, "lower `source.read_bytes_per_second`, or split the shard"),
    "ShardWriteQuotaExceed": (Throttled, ""),
    # Final: a person has to change something.
    "SignatureNotMatch": (
        SourceRefused,
        "check the access key secret, and that nothing on the way rewrites the request",
    ),
    "Unauthorized": (
        SourceRefused,
        "check the access key id, its permissions, and whether a temporary token has expired",
    ),
    "InvalidAccessKeyId": (SourceRefused, "check the access key id"),
    "RequestTimeExpired": (SourceRefused, "set this machine's clock: it is more than 15 minutes off"),
    "InvalidRequestTime": (SourceRefused, _BUG),
    "InvalidHost": (SourceRefused, "check the endpoint and the project's name"),
    "InvalidMethod": (SourceRefused, _NO_SERVICE),
    "InvalidContentType": (SourceRefused, _BUG),
    "MissingParameter": (SourceRefused, _BUG),
    "ParameterInvalid": (SourceRefused, _BUG),
    "PostBodyInvalid": (SourceRefused, _BUG),
    "PostBodyTooLarge": (SourceRefused, _BUG),
    "ProjectAlreadyExist": (SourceRefused, _BUG),
    "ProjectNotExist": (SourceRefused, "check the project's name and that the endpoint is of its region"),
    "ProjectForbidden": (SourceRefused, "the project is disabled or frozen: look at its state in the console"),
    "LogStoreNotExist": (SourceRefused, "check the logstore's name"),
    "LogStoreWithoutShard": (SourceRefused, "the logstore has no shard: look at it in the console"),
    "ShardNotExist": (SourceRefused, "the shard was deleted after its retention; refresh the shards"),
    "InvalidCursor": (SourceRefused, "the cursor is not of this shard or no longer known"),
    "CertificateNotTrusted": (
        SourceRefused,
        "name the authority that signed the server's certificate in REQUESTS_CA_BUNDLE",
    ),
    "AnswerTooLarge": (SourceRefused, _NO_SERVICE),
}


def error_class(code: str, status: int) -> type[SourceError]:
    """The error class for an error code; `status` is the answer's HTTP status, or 0 where no answer came."""
    if code in RULES:
        return RULES[code][0]
    if status == 429 or (status == 403 and "quota" in code.lower()):
        return Throttled
    if status >= 500:
        return SourceUnavailable
    return SourceRefused if status >= 400 else SourceCorrupt


def advice(code: str) -> str:
    """What to do about `code`, as the end of a sentence; empty where there is nothing to add."""
    text = RULES[code][1] if code in RULES else ""
    if code.startswith(_ELSEWHERE):
        text = _NO_SERVICE
    return f": {text}" if text else ""


def retry(patience: Patience, attempt: Callable[[], T]) -> T:
    """Calls `attempt` and repeats it after errors that may pass, as long as `patience` says.

    Pauses double, and each is drawn from zero to its length (full jitter), so that tasks that failed together do not
    come back together. Raises the last error as it is, and a final error at once.
    """
    started, ceiling, tries = time.monotonic(), _FIRST_DELAY, 0
    while True:
        tries += 1
        try:
            return attempt()
        except (SourceUnavailable, SourceCorrupt) as error:
            delay = random.uniform(0, ceiling)  # noqa: S311 - spreads clients, guards nothing
            spent = time.monotonic() - started
            if spent + delay > patience.seconds or (error.code == UNREACHABLE and not patience.knocks):
                if tries > 1:
                    log.error("%s; given up after %d tries in %.1f s", error, tries, spent)
                raise
            log.warning("%s; trying again in %.1f s", error, delay)
        time.sleep(delay)
        ceiling = min(2 * ceiling, _LARGEST_DELAY)
