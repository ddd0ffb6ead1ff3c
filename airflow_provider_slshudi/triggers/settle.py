"""What a settle task waits for where it is deferred."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

LOOK_SECONDS = 5.0
# Of this package alone: where the ledger's database hangs, no other trigger waits for a thread.
_THREADS = ThreadPoolExecutor(2, "slshudi-trigger")


class SettleTrigger(BaseTrigger):
    """Fires once a settle may go on, and after `seconds` in any case.

    It looks at the ledger, and asks Airflow for the state of the run that is waited for. It needs no pipeline file, and
    keeps nothing: started anew on another triggerer, it begins its seconds anew.

    Args:
        ledger_conn_id: the connection of the ledger.
        awaited: the fields of `transaction.dangling.Awaited`.
        seconds: fires after this time at the latest.
    """

    def __init__(self, ledger_conn_id: str, awaited: dict[str, Any], seconds: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # of Airflow's
        self.ledger_conn_id, self.awaited, self.seconds = ledger_conn_id, awaited, seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class's path and the arguments."""
        arguments = {"ledger_conn_id": self.ledger_conn_id, "awaited": self.awaited, "seconds": self.seconds}
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Waits."""
        until = time.monotonic() + self.seconds
        over = False
        while not over and (remaining_seconds := until - time.monotonic()) > 0:
            # Not at once: who defers has just looked.
            await asyncio.sleep(min(LOOK_SECONDS, remaining_seconds) if self.awaited["pipeline"] else remaining_seconds)
            over = await self._is_over(until - time.monotonic())
        said = "it may go on" if over else "it is time to look again"
        yield TriggerEvent(said)  # type: ignore[no-untyped-call]  # of Airflow's

    async def _is_over(self, seconds: float) -> bool:
        """One look, given up after so many seconds; what cannot be known is not over."""
        try:
            look = asyncio.get_running_loop().run_in_executor(_THREADS, self._look)
            return await asyncio.wait_for(look, max(seconds, 0))
        except (TimeoutError, asyncio.TimeoutError):  # two classes in Python 3.10
            return False
        except Exception as error:
            self.log.warning("whether settle may go on is not known: %s", error)
            return False

    def _look(self) -> bool:
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

        from airflow_provider_slshudi.hooks.ledger import LedgerHook
        from airflow_provider_slshudi.hooks.runs import AirflowRuns
        from airflow_provider_slshudi.transaction.dangling import Awaited, is_over

        ledger = LedgerHook(self.ledger_conn_id).ledger_as_it_is()
        return is_over(ledger, Awaited(**self.awaited), AirflowRuns(RuntimeTaskInstance))
