"""Several logstores as one: a shard's number says of which logstore it is, so all else goes on to count in shards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_slshudi.config.sources import STRIDE, Place, place_of
from airflow_provider_slshudi.exceptions import SourceCorrupt, SourceRefused
from airflow_provider_slshudi.sls.answers import Shard
from airflow_provider_slshudi.sls.connection import SlsConnection, variables_of
from airflow_provider_slshudi.sls.credentials import Keeper
from airflow_provider_slshudi.sls.faults import TASK, Patience
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.sls.transport import ask_each
from airflow_provider_slshudi.system.secrets import Variables


def service_of(
    logstores: Sequence[Place],
    connections: Sequence[SlsConnection],
    patience: Patience = TASK,
    keepers: Sequence[Keeper] | None = None,
) -> LogService:
    """The service of a pipeline's logstores.

    Args:
        logstores: `Source.places`.
        connections: the source's, in its order.
        patience: for how long a call is repeated.
        keepers: of the connections' credentials; None: each service has its own.
    """
    services = [
        LogService(
            connections[number],
            project,
            logstore,
            patience=patience,
            credentials=None if keepers is None else keepers[number],
            first_shard=place * STRIDE,
        )
        for place, (project, logstore, number) in enumerate(logstores)
    ]
    return services[0] if len(services) == 1 else Logstores(services, connections)


class Logstores(LogService):
    """Several logstores as one. What it says of itself, and not of a shard, it says of the first.

    Args:
        services: of the logstores, by their places.
        connections: each once, in the order in which logstores first name them.
    """

    def __init__(self, services: Sequence[LogService], connections: Sequence[SlsConnection]) -> None:
        first = services[0]
        self._services, self._connections = services, connections
        self.connection, self.project, self.logstore = first.connection, first.project, first.logstore
        self.compression, self.listed = first.compression, None

    def __repr__(self) -> str:
        return f"Logstores({', '.join(map(repr, self._services))})"

    @property
    def patience(self) -> Patience:
        """The one of all services."""
        return self._services[0].patience

    @patience.setter
    def patience(self, patience: Patience) -> None:
        for service in self._services:
            service.patience = patience

    def to_env(self) -> Variables:
        """As `LogService.to_env`, of each connection."""
        return variables_of(self._connections)

    def of_shard(self, shard: int) -> LogService:
        """As `LogService.of_shard`.

        Raises:
            SourceRefused: the number is of no logstore.
        """
        place = place_of(shard)
        if not 0 <= place < len(self._services):
            what = f"there is no shard {shard}: its number is of none of the {len(self._services)} logstores"
            raise self.error(SourceRefused, what, None, None, code="ShardNotExist")
        return self._services[place]

    @property
    def requests(self) -> int:
        """The sum of all."""
        return sum(service.requests for service in self._services)

    def shards(self) -> list[Shard]:
        """The shards of all logstores, by number; `listed` is the oldest answer's time.

        Raises:
            SourceCorrupt: an id is so great that the number would be another logstore's.
        """
        answers = ask_each(lambda place: self._services[place].shards(), range(len(self._services)))
        times = [service.listed for service in self._services]
        self.listed = None if None in times else min(time for time in times if time is not None)
        for place, listed in answers.items():
            for shard in listed:
                if place_of(shard.id) != place:
                    what = f"a pipeline of several logstores takes shards with ids below {STRIDE} alone"
                    raise self._services[place].error(SourceCorrupt, what, shard.id, None)
        return [shard for place in sorted(answers) for shard in answers[place]]

    def retention(self) -> tuple[int, int] | None:
        """Of the logstore that keeps its logs for the shortest time; None where one does not say."""
        answers = [service.retention() for service in self._services]
        return None if None in answers else min(answer for answer in answers if answer is not None)

    def _call(self, what: str, shard: int | None, *more: Any, **options: Any) -> Any:
        """Has the service of the shard's logstore call."""
        if shard is None:
            raise RuntimeError(f"{what}: which of the logstores is not said")
        return self.of_shard(shard)._call(what, shard, *more, **options)
