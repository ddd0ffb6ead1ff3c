"""One logstore of the log service, with this package's own timeouts, retries, pace and checks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, NoReturn, TypeVar

from airflow_provider_slshudi.exceptions import ConfigError, SourceCorrupt, SourceError, SourceRefused, SourceThrottled
from airflow_provider_slshudi.sls import answers, cursors
from airflow_provider_slshudi.sls.answers import Doubt, Pull, Shard
from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.sls.credentials import Keeper
from airflow_provider_slshudi.sls.faults import TASK, Patience, advice, error_class, retry
from airflow_provider_slshudi.sls.pace import Pacer
from airflow_provider_slshudi.sls.transport import Answer, NoAnswer, Transport
from airflow_provider_slshudi.system.secrets import Variables

__all__ = ["PULL_GROUPS", "Compression", "LogService", "Pull", "Shard"]

T = TypeVar("T")
Compression = Literal["lz4", "zstd"]

PULL_GROUPS = 1000
"""The most log groups that the service puts into one answer."""


class LogService:
    """The shards and log groups of one logstore. Does not pickle: its credentials must not travel with tasks.

    `listed` is the service's time (unix seconds) when it was last asked for its shards; None where it told none.
    `patience` says how long a call is repeated before it raises SourceUnavailable, SourceThrottled or SourceCorrupt;
    `compression` is asked for in pulls; `credentials` are kept for several services, in place of the connection's own.
    The service counts shards from 0; here their numbers begin with `first_shard`, where there are several logstores.
    Every call also raises SourceRefused, and ConfigError where it gets no credentials.
    """

    def __init__(
        self,
        connection: SlsConnection,
        project: str,
        logstore: str,
        *,
        patience: Patience = TASK,
        compression: Compression = "lz4",
        credentials: Keeper | None = None,
        first_shard: int = 0,
    ) -> None:
        for name, value in (("project", project), ("logstore", logstore)):
            if not value or "/" in value:
                raise ConfigError(f"{value!r} is no name of a {name}", source="SLS source", field=name, value=value)
        self.connection, self.project, self.logstore = connection, project, logstore
        self.patience, self.compression, self._first_shard = patience, compression, first_shard
        self._credentials = credentials or Keeper(connection.provider())
        self._transport = Transport(connection, project)
        self.listed: int | None = None

    def __repr__(self) -> str:
        return f"LogService({self.connection!r}, {self.project!r}, {self.logstore!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a LogService holds credentials, which do not travel by pickle")

    def to_env(self) -> Variables:
        """The environment variables from which a driver's process makes the connection again."""
        return self.connection.to_env()

    def of_shard(self, shard: int) -> LogService:
        """The service of the logstore that has this shard; where there is one logstore, this one."""
        return self

    @property
    def requests(self) -> int:
        """How many requests were sent so far, repeated ones included."""
        return self._transport.requests

    def shards(self) -> list[Shard]:
        """All shards, readonly ones included, by id.

        https://www.alibabacloud.com/help/en/sls/developer-reference/api-sls-2020-12-30-listshards
        """

        began = time.monotonic()

        def believe(answer: Answer) -> list[Shard]:
            date, taken = answers.date(answer), time.monotonic() - began
            # The list may be as old as the request.
            self.listed = None if date is None else int(date - taken)
            return [replace(shard, id=shard.id + self._first_shard) for shard in answers.shards(answer)]

        return self._call("list the shards", None, None, {}, believe)

    def logstores(self) -> list[str]:
        """The names of the project's logstores, sorted: at most 500 of them, for a person to choose from.

        https://www.alibabacloud.com/help/en/sls/developer-reference/api-sls-2020-12-30-listlogstores
        """
        query = {"offset": "0", "size": "500"}
        return self._call("list the logstores", None, None, query, answers.logstores, of="/logstores")

    def retention(self) -> tuple[int, int] | None:
        """How many seconds the logstore keeps a log, and when its settings were last changed, in unix seconds.

        None where it does not say.

        https://www.alibabacloud.com/help/en/sls/developer-reference/api-sls-2020-12-30-getlogstore
        """
        return self._call(
            "ask how long logs are kept", None, None, {}, answers.retention, of=f"/logstores/{self.logstore}"
        )

    def ahead(self) -> float | None:
        """Seconds by which this machine's clock is ahead of the service's, to about a second; None where it tells none.

        An answer that refuses the request tells the time, too. It is asked once. Raises SourceUnavailable.
        """
        sent = time.time()
        try:
            answer = self._answer(self._path(None), {})
        except NoAnswer as fault:
            raise self._fault("ask for the time", None, None, fault.code, str(fault), 0, "") from fault
        date = answers.date(answer)
        # A date has whole seconds: the service sent it half a second later, on the average.
        return None if date is None else (sent + time.time()) / 2 - (date + 0.5)

    def begin(self, shard: int) -> int:
        """The cursor of the oldest log group that is still kept."""
        return self._cursor(shard, "begin")

    def end(self, shard: int) -> int:
        """The cursor that the next log group written will get."""
        return self._cursor(shard, "end")

    def end_if_there(self, shard: int) -> int | None:
        """`end`, or None where the service says that it has no such shard."""
        try:
            return self.end(shard)
        except SourceRefused as refused:
            if refused.code != "ShardNotExist":
                raise
            return None

    def at(self, shard: int, unix_seconds: int) -> int:
        """The cursor of the first log group that the service received at or after `unix_seconds`, or `end`."""
        return self._cursor(shard, str(int(unix_seconds)))

    def received(self, shard: int, cursor: int) -> int:
        """When the service received the log group at `cursor`, in unix seconds.

        https://www.alibabacloud.com/help/en/sls/developer-reference/api-sls-2020-12-30-getcursortime
        """
        query = {"type": "cursor_time", "cursor": cursors.text(cursor)}
        return self._call("time of the cursor", shard, cursor, query, answers.cursor_time)

    def pull(self, shard: int, begin: int, end: int, count: int = PULL_GROUPS, pacer: Pacer | None = None) -> Pull:
        """Up to `count` log groups of `[begin, end)`; only `next == end` tells that the end is reached.

        Every try waits for `pacer`.
        https://www.alibabacloud.com/help/en/sls/developer-reference/api-sls-2020-12-30-pulllogs

        Args:
            shard: its id.
            begin: the first cursor.
            end: the cursor after the last one.
            count: the most log groups.
            pacer: keeps to the file's limits; None: there are none.
        """
        if not begin <= end or not 1 <= count <= PULL_GROUPS:
            raise ValueError(f"cannot pull {count} log groups of [{begin}, {end})")
        query = {"type": "log", "cursor": cursors.text(begin), "count": str(count), "end_cursor": cursors.text(end)}

        def believe(answer: Answer) -> Pull:
            return answers.pull(answer, shard, begin, end)

        pulled = self._call("pull", shard, begin, query, believe, pacer)
        if pacer is not None:
            pacer.after(pulled.raw_size)
        return pulled

    def error(
        self, kind: type[SourceError], what: str, shard: int | None, cursor: int | None, **ids: str
    ) -> SourceError:
        """An error of `kind` that says `what` and carries all ids of this logstore.

        Args:
            kind: the class of the error.
            what: its text.
            shard: its id, if it is about one.
            cursor: if it is about one.
        """
        service = self if shard is None else self.of_shard(shard)
        place = f"{service.project}/{service.logstore}"
        if shard is not None:
            place += f" shard {service._own(shard)}" + (f" (number {shard})" if service._first_shard else "")
        if cursor is not None:
            place += f" cursor {cursor}"
        ids_of_place: dict[str, Any] = {"project": service.project, "logstore": service.logstore}
        request = f" (request {ids['request_id']})" if ids.get("request_id") else ""
        text = f"{place}: {what}{request}; {self.patience.next(kind)}"
        return kind(text, shard=shard, cursor=cursor, **ids_of_place, **ids)

    def _cursor(self, shard: int, start: str) -> int:
        return self._call(f"cursor of {start}", shard, None, {"type": "cursor", "from": start}, answers.cursor)

    def _call(
        self,
        what: str,
        shard: int | None,
        cursor: int | None,
        query: Mapping[str, str],
        believe: Callable[[Answer], T],
        pacer: Pacer | None = None,
        of: str = "",
    ) -> T:
        path = of or self._path(shard)

        def attempt() -> T:
            if pacer is not None:
                pacer.before()
            try:
                answer = self._answer(path, query)
                if answer.status == 200:
                    return believe(answer)
            except NoAnswer as fault:
                raise self._fault(what, shard, cursor, fault.code, str(fault), 0, "") from fault
            except Doubt as doubt:
                ids = {"request_id": answer.headers.get("x-log-requestid", "")}
                raise self.error(SourceCorrupt, f"{what} was answered with {doubt}", shard, cursor, **ids) from None
            code, message = answers.error(answer)
            request_id = answer.headers.get("x-log-requestid", "")
            fault_ = self._fault(what, shard, cursor, code, message, answer.status, request_id)
            if pacer is not None and isinstance(fault_, SourceThrottled):
                pacer.throttled()
            raise fault_

        return retry(self.patience, attempt)

    def _path(self, shard: int | None) -> str:
        return f"/logstores/{self.logstore}/shards" + ("" if shard is None else f"/{self._own(shard)}")

    def _own(self, shard: int) -> int:
        """The service's own id of a shard."""
        return shard - self._first_shard

    def _answer(self, path: str, query: Mapping[str, str]) -> Answer:
        headers = {"Accept": "application/x-protobuf", "Accept-Encoding": self.compression}
        try:
            credentials = self._credentials.get()
            answer = self._transport.get(path, query, headers, credentials)
            if answer.status == 401 and self._credentials.refused(credentials):
                answer = self._transport.get(path, query, headers, self._credentials.get())
        except OSError as error:
            raise NoAnswer("CredentialsUnavailable", str(error)) from error
        return answer

    def _fault(
        self, what: str, shard: int | None, cursor: int | None, code: str, message: str, status: int, request_id: str
    ) -> SourceError:
        text = f"{what} failed with {code} ({message}){advice(code)}"
        return self.error(error_class(code, status), text, shard, cursor, code=code, request_id=request_id)
