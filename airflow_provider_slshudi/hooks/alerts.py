"""Whether Airflow tells anyone of a pipeline's failures."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from airflow_provider_slshudi.handover.names import alerts_by_pipeline

_log = logging.getLogger(__name__)


def alerts() -> Mapping[str, bool]:
    """Whether a DAG of each pipeline tells of failures, as Airflow's database says; empty where it says nothing."""
    from airflow.models.dag import DagModel, DagTag
    from airflow.utils.session import create_session
    from sqlalchemy import select

    try:
        with create_session(scoped=False) as session:
            tags = [(name, dag_id) for name, dag_id in session.execute(select(DagTag.name, DagTag.dag_id))]
            paused = set(session.scalars(select(DagModel.dag_id).where(DagModel.is_paused.is_(True))))
    except Exception as error:  # any that its database raises, on a machine without a way to it
        _log.info("whether DAGs name a notifier is not known: %s", error)
        return {}
    return alerts_by_pipeline(tags, paused)
