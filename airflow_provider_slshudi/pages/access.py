"""Who may see which pipeline: whoever may read one of its DAGs, by Airflow's own permissions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.models.dag import DagModel, DagTag
from fastapi import Depends, HTTPException, status
from sqlalchemy import select

from airflow_provider_slshudi.pages import pipeline_of

__all__ = ["SessionDep", "Viewer", "ViewerDep", "is_paused"]


@dataclass(frozen=True)
class Viewer:
    """Who looks: the DAGs that they may read, and those of each pipeline among them."""

    readable: frozenset[str]
    dags: dict[str, list[str]]

    def require(self, pipeline: str) -> list[str]:
        """The pipeline's DAGs that they may read.

        Raises:
            HTTPException: there is none. The answer does not tell whether there is such a pipeline.
        """
        found = self.dags.get(pipeline, [])
        if not found:
            raise HTTPException(status.HTTP_403_FORBIDDEN, "You may not read a DAG of such a pipeline.")
        return found

    def pipelines_of(self, dag_id: str) -> list[str]:
        """The pipelines of a DAG; several of a fleet's, none if it is no pipeline's.

        Raises:
            HTTPException: they may not read the DAG, or there is none.
        """
        if dag_id not in self.readable:
            raise HTTPException(status.HTTP_403_FORBIDDEN, "You may not read such a DAG.")
        return sorted(pipeline for pipeline, dags in self.dags.items() if dag_id in dags)


def _viewer(user: GetUserDep, session: SessionDep) -> Viewer:
    tags: Sequence[tuple[str, str]] = session.execute(select(DagTag.name, DagTag.dag_id)).all()
    readable = get_auth_manager().get_authorized_dag_ids(user=user, method="GET", session=session)
    dags: dict[str, list[str]] = {}
    for tag, dag_id in sorted(tags):
        # A user's own tags may be names of pipelines, too.
        name = pipeline_of(tag)
        if name is not None and dag_id in readable:
            dags.setdefault(name, []).append(dag_id)
    return Viewer(frozenset(readable), dags)


def is_paused(session: SessionDep, dag_id: str) -> bool:
    """Whether Airflow starts no task of this DAG until somebody unpauses it."""
    return bool(session.scalar(select(DagModel.is_paused).where(DagModel.dag_id == dag_id)))


ViewerDep = Annotated[Viewer, Depends(_viewer)]
"""Every route asks for it: without a login Airflow answers 401."""
