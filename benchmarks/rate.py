"""Log groups put at a fixed rate, made before so that the putting takes little."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import lz4.block
from aliyun.log.log_logs_raw_pb2 import LogGroupRaw

from airflow_provider_slshudi.cli.demo.put import ad_events, sdk_client
from airflow_provider_slshudi.sls.connection import SlsConnection

PUTS_A_SECOND, MOST_LOGS = 10.0, 1000
POOL = 24


@dataclass
class Rate:
    """Log groups of one size: `body` is each compressed, `size` its raw bytes on average."""

    logs: int
    bodies: list[tuple[bytes, int]]
    a_second: float

    @classmethod
    def of_mb(cls, a_second: float) -> Rate:
        """Groups of so many raw MB a second in all."""
        some = cls.of(MOST_LOGS * PUTS_A_SECOND)
        return cls.of(a_second * 1e6 / some.size * some.logs)

    @classmethod
    def of(cls, logs_a_second: float) -> Rate:
        """Groups of at most a thousand logs, of which at least ten are put a second."""
        logs = max(1, min(MOST_LOGS, round(logs_a_second / PUTS_A_SECOND)))
        events = ad_events(1, int(time.time() * 1000))
        bodies = []
        for _ in range(POOL):
            group = LogGroupRaw(Topic="ad_events", Source="10.0.0.1")
            for contents in itertools.islice(events, logs):
                log = group.Logs.add(Time=int(time.time()))
                for key, value in contents:
                    log.Contents.add(Key=key, Value=value.encode())
            raw = group.SerializeToString()
            bodies.append((lz4.block.compress(raw, store_size=False), len(raw)))
        return cls(logs, bodies, logs_a_second / logs)

    @property
    def size(self) -> float:
        """Raw bytes of a group."""
        return sum(size for _, size in self.bodies) / len(self.bodies)


class Putter:
    """Puts groups into a logstore's shards in turn, in a thread, until it is stopped.

    Args:
        done: is told the shard of each group that was acknowledged, and how many its shard had before.

    Attributes:
        put: how many groups were acknowledged.
        late: seconds that the latest group was late.
    """

    def __init__(
        self,
        connection: SlsConnection,
        project: str,
        logstore: str,
        shards: int,
        rate: Rate,
        done: Callable[[int, int], None] = lambda shard, number: None,
    ) -> None:
        self._project, self._logstore, self._shards = project, logstore, shards
        self.rate, self._done = rate, done
        self.put, self.late = 0, 0.0
        self._client, self._fault = sdk_client(connection), list[BaseException]()
        self._stopped, self._thread = threading.Event(), threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begins to put."""
        self._thread.start()

    def stop(self) -> None:
        """Puts no more."""
        self._stopped.set()
        self._thread.join()
        self.check()

    def check(self) -> None:
        """Raises what ended the thread."""
        for fault in self._fault:
            raise fault

    def _run(self) -> None:
        try:
            began = time.monotonic()
            for number in itertools.count():
                due = began + number / self.rate.a_second
                if self._stopped.wait(max(due - time.monotonic(), 0)):
                    return
                self.late = max(self.late, time.monotonic() - due)
                shard = number % self._shards
                self._put(shard, self.rate.bodies[number % len(self.rate.bodies)])
                self._done(shard, number // self._shards)
                self.put += 1
        except BaseException as error:
            self._fault.append(error)

    def _put(self, shard: int, body: tuple[bytes, int]) -> None:
        """As the SDK's `put_logs` does with a hash key, which makes a group of Python's objects each time."""
        headers = {
            "x-log-bodyrawsize": str(body[1]),
            "Content-Type": "application/x-protobuf",
            "x-log-compresstype": "lz4",
        }
        key = f"{((2 * shard + 1) << 127) // self._shards:032x}"
        resource = f"/logstores/{self._logstore}/shards/route"
        self._client._send("POST", self._project, body[0], resource, {"key": key}, headers)
