"""Puts numbered logs all the time, each group until the service acknowledges it."""

from __future__ import annotations

import random
import threading
import time

from aliyun.log import LogItem, PutLogsRequest

from airflow_provider_slshudi.sls.connection import SlsConnection
from tests.chaos.place import PROJECT, Line
from tests.local.sdk import Unanswered, once

LOGS_PER_GROUP = 20


class Producer:
    """A thread that fills one logstore.

    A put whose answer was lost is sent again, so that the logstore may hold its logs twice, under two cursors: both
    are logs of the service. `acknowledged` is how many events, by their numbers from 0, are there once at least.
    `failed` is what ended the thread before `stop`.
    """

    failed: Exception | None = None

    def __init__(self, connection: SlsConnection, line: Line, seed: str, pause: float) -> None:
        self.line, self.acknowledged, self.repeated = line, 0, 0
        self._client, self._rng, self._pause = once(connection), random.Random(seed), pause
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"producer-{line.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends after the group that is being put."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._put_all()
        except Exception as error:
            self.failed = error

    def _put_all(self) -> None:
        while not self._stop.is_set():
            count = self._rng.randint(1, LOGS_PER_GROUP)
            numbers = range(self.acknowledged, self.acknowledged + count)
            items = [LogItem(int(time.time()), contents=self.line.log(number)) for number in numbers]
            while not self._put(PutLogsRequest(PROJECT, self.line.name, "ads", "10.0.0.1", items)):
                self.repeated += 1
                time.sleep(0.2)
            self.acknowledged += count
            self._stop.wait(self._rng.uniform(0, 2 * self._pause))

    def _put(self, request: PutLogsRequest) -> bool:
        try:
            self._client.put_logs(request)
        except Unanswered:
            return False
        return True
