"""A log service whose machines have clocks of their own, behind the package's own client; its time is drawn."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from typing import Any

from airflow_provider_slshudi.sls import cursors
from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.sls.credentials import Credentials
from airflow_provider_slshudi.sls.faults import Patience
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.sls.transport import Answer, NoAnswer
from airflow_provider_slshudi.system.secrets import Secret
from airflow_provider_slshudi.transaction.backlog import SERVICE_CLOCKS_SECONDS

EPOCH = datetime(2026, 3, 1, tzinfo=timezone.utc)
DAY = 86_400
_MOST_ASKEW = SERVICE_CLOCKS_SECONDS / 2
_KEYS = 1 << 128


class Clock:
    """The true time, and those that processes take for it; in the place of the modules `time` and `datetime`.

    Args:
        off: by how many seconds the clocks of the ledger and of this machine are wrong.
    """

    def __init__(self, off: float) -> None:
        self.true, self.off = EPOCH.timestamp(), off

    def time(self) -> float:
        """As this machine's clock shows it."""
        return self.true + self.off

    def monotonic(self) -> float:
        """Seconds that have passed."""
        return self.true

    def sleep(self, seconds: float) -> None:
        """Goes on."""
        self.true += seconds

    def now(self, _: object = None) -> datetime:
        """As the ledger's clock shows it."""
        self.true += 0.001
        return datetime.fromtimestamp(self.time(), timezone.utc)


@dataclass(frozen=True)
class Log:
    """A log: when a machine of the service received it, in its own seconds, and the time that it tells itself."""

    received: int
    event: int


@dataclass
class Shard:
    """A shard with hash keys [begin, end), and how far the clock of its machine is off."""

    id: int
    begin: int
    end: int
    base: int
    created: float
    askew: float
    closed: float | None = None
    deleted: bool = False
    oldest: int = 0
    logs: list[Log] = field(default_factory=list)

    @property
    def last(self) -> int:
        """The cursor of the next log."""
        return self.base + len(self.logs)

    @property
    def held(self) -> int:
        """The cursor of the oldest log that is still there."""
        return self.base + self.oldest

    def log(self, cursor: int) -> Log:
        """The log group at a cursor, which is one log."""
        return self.logs[cursor - self.base]


class DrawnService:
    """The shards of a logstore, and what its interface answers.

    Args:
        rng: draws times, clocks and failures.
        clock: the true time.
        shards: how many there are at first.
        meanwhile: called while a request is under way, when logs come and shards are split.
    """

    def __init__(self, rng: random.Random, clock: Clock, shards: int, meanwhile: Callable[[], None]) -> None:
        self._rng, self._clock, self._meanwhile = rng, clock, meanwhile
        self.shards: list[Shard] = []
        self.failing = 0.0
        """The share of requests that get no answer."""
        for number in range(shards):
            self._add(_KEYS * number // shards, _KEYS * (number + 1) // shards)

    @property
    def open(self) -> list[Shard]:
        """The shards that take logs."""
        return [shard for shard in self.shards if shard.closed is None]

    def put(self, shard: Shard, event: int) -> None:
        """A log comes, by the clock of the shard's machine."""
        shard.logs.append(Log(int(self._clock.true + shard.askew), event))

    def move(self, shard: Shard) -> None:
        """Another machine has the shard."""
        shard.askew = self._askew()

    def split(self, shard: Shard) -> None:
        """Closes a shard and opens two."""
        middle = (shard.begin + shard.end) // 2
        shard.closed = self._clock.true
        self._add(shard.begin, middle)
        self._add(middle, shard.end)

    def merge(self, left: Shard, right: Shard) -> None:
        """Closes two neighbours and opens one."""
        left.closed = right.closed = self._clock.true
        self._add(left.begin, right.end)

    def expire(self) -> None:
        """Drops logs that are older than a day, and closed shards without any."""
        before = self._clock.true - DAY
        for shard in self.shards:
            while shard.oldest < len(shard.logs) and shard.logs[shard.oldest].received < before:
                shard.oldest += 1
            if shard.closed is not None and shard.closed < before:
                shard.deleted, shard.oldest = True, len(shard.logs)

    def connect(self) -> LogService:
        """The package's client."""
        connection = SlsConnection(
            endpoint="http://127.0.0.1:1", access_key_id="id", access_key_secret=Secret("secret")
        )
        client = LogService(connection, "ads", "events", patience=Patience(2))
        client._transport = self  # type: ignore[assignment]
        return client

    requests = 0

    def get(self, path: str, query: Mapping[str, str], headers: Mapping[str, str], _: Credentials) -> Answer:
        """The answer to a request, which takes its time before and after it is known."""
        self._pass()
        if self._rng.random() < self.failing:
            raise NoAnswer("Timeout", "no answer")
        code, document = self._answer(path, query)
        self._pass()
        date = EPOCH + timedelta(seconds=self._clock.true + self._askew() - EPOCH.timestamp())
        named = {"date": format_datetime(date.replace(microsecond=0), usegmt=True)}
        answer = Answer(code, named, bytearray(json.dumps(document).encode()))
        self._pass()
        return answer

    def _answer(self, path: str, query: Mapping[str, str]) -> tuple[int, Any]:
        if "/shards" not in path:
            return 200, {"ttl": 1, "lastModifyTime": 0}
        if path.endswith("/shards"):
            return 200, [_listed(shard) for shard in self.shards if not shard.deleted]
        shard = self.shards[int(path.rpartition("/")[2])]
        if shard.deleted:
            return 404, {"errorCode": "ShardNotExist", "errorMessage": "gone"}
        if query["type"] == "cursor_time":
            cursor = max(cursors.parse(query["cursor"]), shard.held)
            return 200, {"cursor_time": shard.log(cursor).received if cursor < shard.last else int(self._clock.true)}
        return 200, {"cursor": cursors.text(self._cursor(shard, query["from"]))}

    def _cursor(self, shard: Shard, of: str) -> int:
        if of == "end":
            return shard.last
        if of == "begin":
            return shard.held
        later = (cursor for cursor in range(shard.held, shard.last) if shard.log(cursor).received >= int(of))
        return next(later, shard.last)

    def _pass(self) -> None:
        # Now and then an answer takes very long.
        is_slow = self._rng.random() < 0.03
        self._clock.true += self._rng.uniform(1, 20) if is_slow else self._rng.choice((0.01, 0.05, 0.3))
        self._meanwhile()

    def _askew(self) -> float:
        return self._rng.choice((-_MOST_ASKEW, 0.0, _MOST_ASKEW, self._rng.uniform(-_MOST_ASKEW, _MOST_ASKEW)))

    def _add(self, begin: int, end: int) -> None:
        base, made = self._rng.randrange(1, 1 << 40), self._clock.true
        self.shards.append(Shard(len(self.shards), begin, end, base, made, self._askew()))


def _listed(shard: Shard) -> dict[str, Any]:
    status = "readwrite" if shard.closed is None else "readonly"
    named = {"shardID": shard.id, "status": status, "createTime": int(shard.created + shard.askew)}
    return named | {"inclusiveBeginKey": f"{shard.begin:032x}", "exclusiveEndKey": f"{shard.end % _KEYS:032x}"}
