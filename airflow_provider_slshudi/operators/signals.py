"""A pipeline's figures as metrics of Airflow's own (StatsD, OpenTelemetry), where they are turned on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk.configuration import conf

if TYPE_CHECKING:
    from airflow_provider_slshudi.protocol.work import Work

_SWITCHES = ("statsd_on", "statsd_datadog_enabled", "otel_on")


def signal(work: Work) -> None:
    """Sends the pipeline's figures, `slshudi.NAME` with tags; does nothing where Airflow sends no metrics."""
    if not any(conf.getboolean("metrics", switch, fallback=False) for switch in _SWITCHES):
        return
    from airflow.sdk.observability import stats

    from airflow_provider_slshudi.views.metrics import metrics

    for found in metrics(work.ledger, [work.pipeline.name]):
        stats.gauge(f"slshudi.{found.name}", found.value, tags=dict(found.labels))
