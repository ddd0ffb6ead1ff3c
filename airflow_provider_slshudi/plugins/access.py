"""Who may see which pipeline: a user who may read the DAG that writes it, by Airflow's own permissions.

A tag says which pipeline a DAG belongs to, and any DAG may carry any tag. So a tag opens no page by itself: a ledger
knows which DAGs have worked on the pipeline, and the viewer has to be allowed to read one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.models.dag import DagModel, DagTag
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.variable import Variable
from fastapi import Depends, HTTPException, status
from sqlalchemy import select

from airflow_provider_slshudi import settings
from airflow_provider_slshudi.exceptions import LedgerUnavailable
from airflow_provider_slshudi.handover.names import ROLES_BESIDE, alerts_by_pipeline, pipeline_of
from airflow_provider_slshudi.hooks.ledger import each_ledger
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.views.standing import Need, PipelineView
from airflow_provider_slshudi.views.words import Text

__all__ = ["SessionDep", "Viewer", "ViewerDep", "is_paused"]

_NOT_SHOWN = "You may not read a DAG that writes such a pipeline."
_OTHER_ROLES = (*ROLES_BESIDE, "watch")


@dataclass(frozen=True)
class Viewer:
    """A user who looks.

    Attributes:
        readable: the DAGs that they may read.
        tagged: by pipeline, those of these DAGs that carry its tag.
        reads_logs: says whether they may read the task logs of a DAG.
        paused: DAGs that Airflow starts no run of.
        broken: DAGs whose file Airflow cannot import as it is now.
        without_alerts: pipelines of which no DAG tells of failures, and nothing else is said to watch them.
        next_run: says when Airflow will start the next run of a DAG; None if none is scheduled.
        gone_dags: DAGs that no file makes any more.
        has_task: whether a DAG has a task.
    """

    readable: frozenset[str]
    tagged: dict[str, list[str]]
    reads_logs: Callable[[str], bool]
    paused: frozenset[str] = frozenset()
    broken: frozenset[str] = frozenset()
    without_alerts: frozenset[str] = frozenset()
    next_run: Callable[[str], datetime | None] = lambda _: None
    gone_dags: frozenset[str] = frozenset()
    has_task: Callable[[str, str], bool] = lambda _, __: True

    def readers(self, pipeline: str) -> list[str]:
        """Its DAGs that bring new logs: all that are tagged but those that a person starts, or that only look."""
        others = {f"{pipeline}_{role}" for role in _OTHER_ROLES}
        return [dag for dag in self.tagged.get(pipeline, ()) if dag not in others]

    def as_airflow_has_it(self, view: PipelineView) -> PipelineView:
        """A pipeline at a glance, with what the ledger cannot know: its DAG is paused, or its file is broken."""
        readers = self.readers(view.name)
        broken, paused = (sorted(set(readers) & dags) for dags in (self.broken, self.paused))
        if broken and view.need is not Need.LOOK:
            return replace(view, need=Need.LOOK, why=Text("the file of DAG {dag} cannot be imported", dag=broken[0]))
        if readers and paused == sorted(readers) and view.need.urgency > Need.EXPIRES.urgency:
            return replace(
                view, need=Need.PAUSED, why=Text("DAG {dag} is paused: no run reads what is new", dag=paused[0])
            )
        return view

    @cached_property
    def _looks(self) -> tuple[list[tuple[Ledger, Mapping[str, frozenset[str]]]], dict[str, Exception]]:
        return each_ledger(lambda ledger: (ledger, ledger.writers()))

    @property
    def silent_ledgers(self) -> dict[str, Exception]:
        """By connection, why a ledger cannot be read."""
        return self._looks[1]

    @cached_property
    def dags(self) -> dict[str, list[str]]:
        """By pipeline whose page they may see, its DAGs that they may read."""
        return {name: dags for name, dags in self.tagged.items() if self._readable_writers(name)}

    @property
    def waiting(self) -> list[str]:
        """Pipelines of DAGs that they may read, of which no ledger knows a run: they have no page."""
        return sorted(name for name in self.tagged if not any(name in writers for _, writers in self._looks[0]))

    @cached_property
    def ledgers(self) -> dict[Ledger, list[str]]:
        """The ledgers that can be read, each with its pipelines whose pages they may see."""
        return {
            ledger: sorted(name for name in self.dags if self.readable & writers.get(name, frozenset()))
            for ledger, writers in self._looks[0]
        }

    def require(self, pipeline: str) -> tuple[Ledger, list[str]]:
        """The pipeline's ledger, and its DAGs that they may read.

        Raises:
            HTTPException: they may not see the pipeline, and the answer does not tell whether there is such a pipeline;
                or several ledgers have one of this name.
            LedgerUnavailable: no ledger that can be read has it, and another one cannot be read.
        """
        ledgers = [ledger for ledger, names in self.ledgers.items() if pipeline in names]
        if not ledgers and pipeline in self.tagged:
            self._require_all_read()
        if not ledgers:
            raise HTTPException(status.HTTP_403_FORBIDDEN, _NOT_SHOWN)
        if len(ledgers) > 1:
            raise HTTPException(
                status.HTTP_409_CONFLICT,
                f"Several ledgers have a pipeline {pipeline}: [slshudi] ledger_conn_id and more_ledgers may name one.",
            )
        return ledgers[0], self.dags[pipeline]

    def require_transaction(self, id_: str) -> tuple[Ledger, list[str]]:
        """The ledger of a transaction, and the DAGs of its pipeline that they may read.

        Raises:
            HTTPException: they may not see it, or no ledger has it.
            LedgerUnavailable: no ledger that can be read has it, and another one cannot be read.
        """
        for ledger, names in self.ledgers.items():
            transaction = ledger.find(id_)
            if transaction is not None and transaction.pipeline in names:
                return ledger, self.dags[transaction.pipeline]
        self._require_all_read()
        raise HTTPException(status.HTTP_403_FORBIDDEN, _NOT_SHOWN)

    def _require_all_read(self) -> None:
        for conn_id, error in self.silent_ledgers.items():
            raise LedgerUnavailable(f"connection {conn_id!r}: {error}")

    def sees_values(self, pipeline: str) -> bool:
        """Whether they may see values of a pipeline's logs, as they may where they read its DAG's task logs."""
        return any(map(self.reads_logs, self._readable_writers(pipeline)))

    def _readable_writers(self, pipeline: str) -> list[str]:
        writers = (of.get(pipeline, frozenset()) for _, of in self._looks[0])
        return sorted(self.readable.intersection(frozenset().union(*writers)))

    def pipelines_of(self, dag_id: str) -> list[str]:
        """The pipelines of a DAG; several of a fleet's, none if it is no pipeline's or has not run yet.

        Raises:
            HTTPException: they may not read the DAG, or there is none.
            LedgerUnavailable: it is tagged, no ledger that can be read has its pipelines, and another cannot be read.
        """
        if dag_id not in self.readable:
            raise HTTPException(status.HTTP_403_FORBIDDEN, "You may not read such a DAG.")
        names = sorted(pipeline for pipeline, dags in self.dags.items() if dag_id in dags)
        if not names and any(dag_id in dags for dags in self.tagged.values()):
            self._require_all_read()
        return names


def _viewer(user: GetUserDep, session: SessionDep) -> Viewer:
    tags = [(name, dag_id) for name, dag_id in session.execute(select(DagTag.name, DagTag.dag_id))]
    manager = get_auth_manager()
    readable = manager.get_authorized_dag_ids(user=user, method="GET", session=session)
    tagged: dict[str, list[str]] = {}
    for tag, dag_id in sorted(tags):
        # A user's own tags may be names of pipelines, too.
        name = pipeline_of(tag)
        if name is not None and dag_id in readable:
            tagged.setdefault(name, []).append(dag_id)

    def reads_logs(dag_id: str) -> bool:
        logs, details = DagAccessEntity.TASK_LOGS, DagDetails(id=dag_id)
        return manager.is_authorized_dag(method="GET", access_entity=logs, details=details, user=user)

    paused = select(DagModel.dag_id).where(DagModel.is_paused.is_(True))
    broken = select(DagModel.dag_id).where(DagModel.has_import_errors.is_(True))
    gone_query = select(DagModel.dag_id).where(DagModel.is_stale.is_(True))
    paused_dags, broken_dags, gone_dags = (frozenset(session.scalars(query)) for query in (paused, broken, gone_query))
    alerts = {} if settings.watched_by() else alerts_by_pipeline(tags, paused_dags)
    silent = frozenset(name for name, tells in alerts.items() if not tells)

    def next_run(dag_id: str) -> datetime | None:
        return session.scalar(select(DagModel.next_dagrun_create_after).where(DagModel.dag_id == dag_id))

    def has_task(dag_id: str, task_id: str) -> bool:
        return bool((dag := SerializedDagModel.get_dag(dag_id, session=session)) and dag.has_task(task_id))

    who = frozenset(readable), tagged, reads_logs
    return Viewer(*who, paused_dags, broken_dags, silent, next_run, gone_dags, has_task)


def this_airflow() -> str:
    """The name by which this Airflow's tasks recognise its runs; empty before the first of them."""
    return str(Variable.get(settings.AIRFLOW_NAME, default_var="") or "")


def is_paused(session: SessionDep, dag_id: str) -> bool:
    """Whether Airflow starts no task of this DAG until it is unpaused."""
    return bool(session.scalar(select(DagModel.is_paused).where(DagModel.dag_id == dag_id)))


ViewerDep = Annotated[Viewer, Depends(_viewer)]
"""Every route asks for it: without a login Airflow answers 401."""
