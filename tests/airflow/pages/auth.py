"""Airflow's simple auth manager, where one user may read only some DAGs."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

MINE = "mine"
"""What the names of DAGs begin with that everybody may read."""


class PerDag(SimpleAuthManager):
    """`reader` and `operator` see DAGs whose names begin with MINE, `onlooker` too, but no logs of their tasks.

    `operator` may not trigger what may lose data; `admin` may all.
    """

    def is_authorized_dag(self, *, method: Any, user: Any, access_entity: Any = None, details: Any = None) -> bool:
        allowed = super().is_authorized_dag(method=method, user=user, access_entity=access_entity, details=details)
        if user.username == "onlooker" and access_entity is DagAccessEntity.TASK_LOGS:
            return False
        if user.username == "admin" or details is None or details.id is None:
            return allowed
        overrides = details.id.endswith("_override") and method != "GET"
        return bool(allowed and details.id.startswith(MINE) and not overrides)
