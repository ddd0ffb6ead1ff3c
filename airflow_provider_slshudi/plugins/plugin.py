"""The plugin by which Airflow shows the pages.

Every process of Airflow imports this, tasks too, so it imports the pages themselves with the first request.
https://airflow.apache.org/docs/apache-airflow/stable/administration-and-deployment/plugins.html
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.plugins_manager import AirflowPlugin
from airflow.providers.common.compat.sdk import conf

from airflow_provider_slshudi.handover.names import PREFIX
from airflow_provider_slshudi.plugins import preload

if TYPE_CHECKING:
    from fastapi import FastAPI


class Pages:
    """The ASGI application, made when it is first asked."""

    @cached_property
    def app(self) -> FastAPI:
        """The application itself."""
        from airflow_provider_slshudi.plugins.app import create_app

        return create_app()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serves one request."""
        await self.app(scope, receive, send)


# Airflow may live below a path of its own, and uses a view's address as it is.
_HERE = urlsplit(str(conf.get("api", "base_url", fallback="") or "")).path.rstrip("/") + PREFIX


def _tab(destination: str, path: str) -> dict[str, Any]:
    """A tab; Airflow puts ids into `{DAG_ID}` and `{RUN_ID}`, encoded for a path."""
    # Airflow drops a view whose route another one has.
    route = f"slshudi-{destination.replace('_', '-')}"
    return {"name": "Log Pipeline", "href": f"{_HERE}{path}", "destination": destination, "url_route": route}


class SlsHudiPlugin(AirflowPlugin):
    """Pages of all pipelines, and a tab on DAGs, runs and tasks."""

    name = "slshudi"
    listeners = [preload]  # noqa: RUF012
    fastapi_apps = [{"app": Pages(), "url_prefix": PREFIX, "name": "slshudi"}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        {
            "name": "Log Pipelines",
            "href": f"{_HERE}/",
            "destination": "nav",
            "category": "browse",
            "url_route": "slshudi",
        },
        _tab("dag", "/dags/{DAG_ID}"),
        _tab("dag_run", "/dags/{DAG_ID}/runs/{RUN_ID}"),
        _tab("task", "/dags/{DAG_ID}"),
        _tab("task_instance", "/dags/{DAG_ID}/runs/{RUN_ID}"),
    ]
