"""A task that fails if a pipeline asks for a person, so that Airflow's own means tell people."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_slshudi import settings
from airflow_provider_slshudi.hooks.ledger import LedgerHook
from airflow_provider_slshudi.operators.base import PipelineOperator, dag_file

if TYPE_CHECKING:
    from airflow.sdk import Context


class SlsHudiWatchOperator(PipelineOperator):
    """Looks into the ledger, and fails with what is to be told, a line each; succeeds if there is nothing.

    `on_failure_callback` takes any of Airflow's notifiers, whose templates know the text as `exception`. It is told
    why the pipeline's state is "needs attention" or "expires soon", each gap that was recorded within the last hour,
    each consumer for which cleaning and archival will not wait much longer, and what is beyond the limits. A finding is
    no try to be repeated: it fails at once.

    Args:
        pipeline: a pipeline's name or file, or a `Pipeline`; connections as in `PipelineOperator`.
        behind, dangling, expires: see `views.findings.Limits`.
    """

    def __init__(
        self,
        *,
        behind: timedelta | None = None,
        dangling: timedelta | None = None,
        expires: timedelta | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.behind, self.dangling, self.expires = behind, dangling, expires

    def execute(self, context: Context) -> None:
        """Looks."""
        from airflow_provider_slshudi.views.findings import Limits, findings

        name = settings.pipeline(self.pipeline, dag_file(context)).name
        ledger = LedgerHook(self.connections.ledger).ledger_as_it_is()
        # Not `told`: what the watch finds is in the ledger already, and would be found again.
        sentences = findings(ledger, name, Limits(self.behind, self.dangling, self.expires))
        if sentences:
            raise AirflowFailException("\n".join(sentences))
