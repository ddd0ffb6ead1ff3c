"""What tasks behind a table wait for where they are deferred: a consumer's changes, and a complete partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_slshudi.triggers.ledger import LedgerTrigger

if TYPE_CHECKING:
    from airflow_provider_slshudi.ledger.ledger import Ledger

LOOK_SECONDS = 1.5
"""Such a look is two short queries."""


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

    def pause(self) -> float:
        """A moment."""
        return LOOK_SECONDS

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

    def pause(self) -> float:
        """A moment."""
        return LOOK_SECONDS

    def is_over(self, ledger: Ledger) -> bool:
        """Whether the ledger has it, and waits for nothing more."""
        return any(not item.is_awaited for item in ledger.partitions(self.pipeline, self.begin, self.begin + 1))
