"""Logs put by the SDK and read back while a share of all requests fails.

Every kind of fault that the local server knows takes its part. Ranges are read as tasks read them, each by a copy of
the client, and one whose range fails for good is tried again from its begin, as Spark does. Every log must be there,
once, and in the order of its shard.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from airflow_provider_slshudi.exceptions import SlsHudiError
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.local.faultplan import Kind
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.sls.credentials import Credentials, Keeper
from airflow_provider_slshudi.sls.faults import Patience
from airflow_provider_slshudi.sls.reader import Reader
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.sls.transport import Answer, Transport
from tests.exact.outcome import Outcome
from tests.local.sdk import PROJECT, by_ip, log_group, make_logstore

T = TypeVar("T")
LOGSTORE, SHARDS, READERS = "soaked", 4, 4
LOGS_PER_GROUP, GROUPS_PER_RANGE = 100, 10
TRIES = 4
"""How often a task is tried, as Spark's own default says."""


@dataclass(frozen=True)
class Issued:
    """Keys as a token service gives them: with another end each time."""

    connection: SlsConnection

    def __call__(self) -> Credentials:
        """The keys, good for another hour."""
        there = self.connection
        return Credentials(
            there.access_key_id, there.access_key_secret, there.security_token, expires=time.time() + 3600
        )


def plan(share: float, seed: int) -> dict[str, object]:
    """A fault plan in which `share` of all requests go wrong, in all ways alike."""
    kinds = [kind for kind in get_args(Kind) if kind != "pass"]
    # The first rule that fires counts, and each is asked only if those before it did not.
    each = 1 - (1 - share) ** (1 / len(kinds))
    rules: list[dict[str, object]] = [{"do": kind, "probability": each, "seconds": 0.1} for kind in kinds]
    return {"seed": seed, "rules": rules}


def soak(directory: Path, logs: int, failing: float, seed: int, outcome: Outcome) -> None:
    """Puts `logs` logs, then reads them back under the fault plan."""
    with _counted() as sent, LocalSls(directory, security_token="temporary") as server:
        _put(server, logs)
        connection = server.connection()
        connect = partial(
            LogService, connection, PROJECT, LOGSTORE, patience=Patience(30.0), credentials=Keeper(Issued(connection))
        )
        service = connect()
        server.faults = plan(failing, seed)
        ends = {shard: _patient(partial(_bounds, service, shard)) for shard in _patient(partial(_ids, service))}
        work = [
            Range(shard, at, min(at + GROUPS_PER_RANGE, end))
            for shard, (begin, end) in ends.items()
            for at in range(begin, end, GROUPS_PER_RANGE)
        ]
        with ThreadPoolExecutor(READERS) as pool:
            done = list(pool.map(partial(_task, connect), work))
        kinds = Counter[str]()
        for (_, kind), count in server.injected().items():
            kinds[kind] += count
        outcome.figures.update(requests=len(sent), faults=kinds.total(), tasks=len(work))
        outcome.figures["tasks tried again"] += sum(tries > 1 for _, tries in done)
        outcome.notes += [f"{count} {kind}" for kind, count in sorted(kinds.items())]
        _judge(outcome, work, [numbers for numbers, _ in done], logs)


def _put(server: LocalSls, logs: int) -> None:
    """Numbered logs, in order, to the shards in turn."""
    client = by_ip(server.connection())
    make_logstore(client, LOGSTORE, SHARDS)
    for first in range(0, logs, LOGS_PER_GROUP):
        numbers = range(first, min(first + LOGS_PER_GROUP, logs))
        client.put_log_raw(PROJECT, LOGSTORE, log_group(*(b"%d" % number for number in numbers)))


def _patient(call: Callable[[], T], tries: int = TRIES) -> T:
    """What a task does that failed for good: it is tried again."""
    for _ in range(tries - 1):
        with suppress(SlsHudiError):
            return call()
    return call()


def _ids(service: LogService) -> list[int]:
    return [shard.id for shard in service.shards()]


def _bounds(service: LogService, shard: int) -> tuple[int, int]:
    return service.begin(shard), service.end(shard)


def _task(connect: Callable[[], LogService], item: Range) -> tuple[NDArray[np.int64], int]:
    """The numbers in a range, and how many tries it took."""
    tries = 0

    def read() -> NDArray[np.int64]:
        nonlocal tries
        tries += 1
        reader = Reader(connect(), "soak")
        values = pa.concat_tables(table for _, table in reader.tables(item, ["value"]))["value"]
        return np.asarray(values.cast(pa.string()).cast(pa.int64()))

    return _patient(read), tries


def _judge(outcome: Outcome, work: list[Range], done: list[NDArray[np.int64]], logs: int) -> None:
    of_shard: dict[int, list[NDArray[np.int64]]] = {}
    for item, numbers in zip(work, done, strict=True):
        of_shard.setdefault(item.shard, []).append(numbers)
    shards = [np.concatenate(parts) for parts in of_shard.values()]
    if disordered := sum(int((np.diff(numbers) <= 0).sum()) for numbers in shards):
        outcome.wrong.append(f"{disordered} logs are out of order")
    times = np.bincount(np.concatenate(shards), minlength=logs)
    there = int((times[:logs] > 0).sum())
    outcome.add(Outcome(logs, logs - there, int(times.sum()) - there))


@contextmanager
def _counted() -> Iterator[list[None]]:
    """An item for every request that is sent meanwhile."""
    sent, get = list[None](), Transport.get

    def counting(
        self: Transport, path: str, query: Mapping[str, str], headers: Mapping[str, str], credentials: Credentials
    ) -> Answer:
        sent.append(None)
        return get(self, path, query, headers, credentials)

    Transport.get = counting  # type: ignore[method-assign]
    try:
        yield sent
    finally:
        Transport.get = get  # type: ignore[method-assign]
