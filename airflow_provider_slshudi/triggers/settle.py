"""What a settle task waits for where it is deferred."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.triggers.ledger import LedgerTrigger

if TYPE_CHECKING:
    from airflow_provider_slshudi.ledger.ledger import Ledger

LOOK_SECONDS = 5.0


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
        return LOOK_SECONDS if self.awaited["pipeline"] else self.seconds

    def is_over(self, ledger: Ledger) -> bool:
        """Whether a settle should look again."""
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

        from airflow_provider_slshudi.hooks.runs import AirflowRuns
        from airflow_provider_slshudi.transaction.dangling import Awaited, is_over

        return is_over(ledger, Awaited(**self.awaited), AirflowRuns(RuntimeTaskInstance))
