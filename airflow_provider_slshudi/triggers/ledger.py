"""Triggers that look at the ledger: in threads of this package's own, and for so long at most."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

if TYPE_CHECKING:
    from airflow_provider_slshudi.ledger.ledger import Ledger

# Of this package alone: where the ledger's database hangs, no other trigger waits for a thread.
_THREADS = ThreadPoolExecutor(2, "slshudi-trigger")
LOOK_SECONDS, SETTLE_SECONDS = 1.5, 5.0
"""Between two looks: of two short queries, and of one that asks Airflow, too."""


class LedgerTrigger(BaseTrigger):
    """Fires once the ledger says that the wait is over, and after `seconds` in any case.

    It needs no pipeline file, and keeps nothing: started anew on another triggerer, it begins its seconds anew.

    Args:
        ledger_conn_id: the connection of the ledger.
        seconds: fires after this time at the latest.
        waits_for: the other arguments of its class, plain values.
    """

    def __init__(self, ledger_conn_id: str, seconds: float, **waits_for: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # of Airflow's
        self.ledger_conn_id, self.seconds, self._waits_for = ledger_conn_id, seconds, waits_for

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class's path and the arguments."""
        arguments = {"ledger_conn_id": self.ledger_conn_id, **self._waits_for, "seconds": self.seconds}
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    def pause(self) -> float:
        """Seconds until the next look."""
        return LOOK_SECONDS

    @abstractmethod
    def is_over(self, ledger: Ledger) -> bool:
        """One look; in a thread."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Waits."""
        until = time.monotonic() + self.seconds
        over = False
        while not over and (remaining_seconds := until - time.monotonic()) > 0:
            # Not at once: who defers has just looked.
            await asyncio.sleep(min(self.pause(), remaining_seconds))
            over = await self._look(until - time.monotonic())
        said = "it may go on" if over else "it is time to look again"
        yield TriggerEvent(said)  # type: ignore[no-untyped-call]  # of Airflow's

    async def _look(self, seconds: float) -> bool:
        """One look, given up after so many seconds; what cannot be known is not over."""
        try:
            look = asyncio.get_running_loop().run_in_executor(_THREADS, self._look_now)
            return await asyncio.wait_for(look, max(seconds, 0))
        except (TimeoutError, asyncio.TimeoutError):  # two classes in Python 3.10
            return False
        except Exception as error:
            self.log.warning("whether the wait is over is not known: %s", error)
            return False

    def _look_now(self) -> bool:
        from airflow_provider_slshudi.hooks.ledger import LedgerHook

        return self.is_over(LedgerHook(self.ledger_conn_id).ledger_as_it_is())


class SettleTrigger(LedgerTrigger):
    """Fires once a settle may go on, and after `seconds` in any case.

    It looks at the ledger, and asks Airflow for the state of the run that is waited for.

    Args:
        ledger_conn_id: the connection of the ledger.
        awaited: the fields of `transaction.dangling.Awaited`.
        seconds: fires after this time at the latest.
    """

    def __init__(self, ledger_conn_id: str, awaited: dict[str, Any], seconds: float) -> None:
        super().__init__(ledger_conn_id, seconds, awaited=awaited)
        self.awaited = awaited

    def pause(self) -> float:
        """Five seconds, where it is known what is waited for."""
        return SETTLE_SECONDS if self.awaited["pipeline"] else self.seconds

    def is_over(self, ledger: Ledger) -> bool:
        """Whether a settle should look again."""
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

        from airflow_provider_slshudi.hooks.runs import AirflowRuns
        from airflow_provider_slshudi.transaction.dangling import Awaited, is_over

        return is_over(ledger, Awaited(**self.awaited), AirflowRuns(RuntimeTaskInstance))


class ChangesTrigger(LedgerTrigger):
    """Fires once a consumer has something to take, or is forgotten, and after `seconds` in any case.

    Args:
        ledger_conn_id: the connection of the ledger.
        pipeline: its name in the ledger.
        consumer: the consumer's name.
        seconds: fires after this time at the latest.
    """

    def __init__(self, ledger_conn_id: str, pipeline: str, consumer: str, seconds: float) -> None:
        super().__init__(ledger_conn_id, seconds, pipeline=pipeline, consumer=consumer)
        self.pipeline, self.consumer = pipeline, consumer

    def is_over(self, ledger: Ledger) -> bool:
        """Whether there is something that it has not confirmed."""
        consumer = ledger.consumer(self.pipeline, self.consumer)
        return consumer is None or ledger.newest(self.pipeline, consumer.of) > consumer.confirmed


class PartitionTrigger(LedgerTrigger):
    """Fires once a partition is complete, or will never be, and after `seconds` in any case.

    Args:
        ledger_conn_id: the connection of the ledger.
        pipeline: its name in the ledger.
        begin: when the partition's event times begin, in unix seconds.
        seconds: fires after this time at the latest.
    """

    def __init__(self, ledger_conn_id: str, pipeline: str, begin: int, seconds: float) -> None:
        super().__init__(ledger_conn_id, seconds, pipeline=pipeline, begin=begin)
        self.pipeline, self.begin = pipeline, begin

    def is_over(self, ledger: Ledger) -> bool:
        """Whether the ledger has it, and waits for nothing more."""
        return any(not item.is_awaited for item in ledger.partitions(self.pipeline, self.begin, self.begin + 1))
