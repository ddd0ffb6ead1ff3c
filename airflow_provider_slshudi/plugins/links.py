"""Links from a task to pages that say more; Airflow stores each when the task has ended, failed ones included.

An empty link is none: Airflow shows no button for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from airflow.providers.common.compat.sdk import conf
from airflow.sdk import BaseOperatorLink

from airflow_provider_slshudi import dagfile, settings
from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.handover.names import PREFIX

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey


class TransactionLink(BaseOperatorLink):
    """From a step to its transaction: ranges, history, decisions."""

    name = "Transaction"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """The page; none where nothing was planned."""
        planned = getattr(operator, "transaction", None)
        return _page(f"transactions/{planned['transaction']}") if isinstance(planned, Mapping) else ""


class PipelineLink(BaseOperatorLink):
    """From a task that is no transaction's to its pipeline."""

    name = "Pipeline"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """The page; none where the pipeline's file cannot be read."""
        try:
            return _page(f"pipelines/{_name_of(operator)}")
        except ConfigError:
            return ""


class SparkLink(BaseOperatorLink):
    """To the page of a task's Spark driver, if it has one; stored once the driver tells it, taken away at its end."""

    name = "Spark"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """None: Airflow asks once the task has ended, and the driver with it."""
        return ""


def _name_of(operator: BaseOperator) -> str:
    """The pipeline's name: as the task has read it, or else by its file, which the task may have failed to read."""
    work = getattr(operator, "_work", None)
    if work is not None:
        return str(work.pipeline.name)
    dag = operator.get_dag()
    return settings.pipeline(getattr(operator, "pipeline", ""), dagfile.of(dag) if dag else None).name


def web_address(text: str) -> str:
    """The text if a link may lead there: an address of HTTP or HTTPS with a host; else empty, which is no link.

    What a driver prints may have come from somewhere else, and a browser runs what stands behind `javascript:`.
    """
    try:
        address = urlsplit(text)
    except ValueError:
        return ""
    is_plain = text.isprintable() and not any(map(str.isspace, text))
    return text if is_plain and address.scheme in ("http", "https") and address.hostname else ""


def _page(path: str) -> str:
    return f"{str(conf.get('api', 'base_url', fallback='') or '').rstrip('/')}{PREFIX}/{path}"
