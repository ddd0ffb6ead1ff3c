"""A table's faults: the driver that finds them leaves them for the one that mends them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from airflow_provider_slshudi.notes import ROOT
from airflow_provider_slshudi.notes.bound import digest_of, read_bound
from airflow_provider_slshudi.storage import Storage


@dataclass(frozen=True)
class Findings:
    """A table's faults.

    Attributes:
        foreign: indexes that a client made by SQL: no batch gets through.
        hiding: columns that have bounds in Hudi's index and should have none: filters on some of them, or on functions
            of them, hide rows; or some files lack the column, and Hudi takes it for NULL in whole partitions.
        lacking: columns that all files have, and that lack the bounds that the pipeline's file asks for.
        escaped: whether the properties wrongly say that folder names are escaped, which stops Spark at rows without a
            partition.
        looked: how many base files there are.
    """

    foreign: tuple[str, ...] = ()
    hiding: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    escaped: bool = False
    looked: int = 0

    @property
    def ok(self) -> bool:
        """Whether there is nothing to mend."""
        return not (self.foreign or self.hiding or self.lacking or self.escaped)


@dataclass(frozen=True)
class Named:
    """How a driver finds findings: by their id; it knows them by their SHA-256."""

    id: str
    digest: str


NOTHING = Named("", "")
"""No findings."""


def leave_findings(storage: Storage, id_: str, found: Findings) -> None:
    """Leaves the findings."""
    storage.write(_path(id_), json.dumps(asdict(found)).encode())


def take_findings(storage: Storage, id_: str) -> tuple[Findings, str] | None:
    """The findings and their SHA-256, None where none were left."""
    content = storage.read(_path(id_))
    digest = "" if content is None else digest_of(content)
    found = read_findings(storage, id_, digest)
    return None if found is None else (found, digest)


def read_findings(storage: Storage, id_: str, digest: str) -> Findings | None:
    """The findings whose SHA-256 is `digest`, None where none were left.

    Raises:
        ManifestError: the findings there are others.
    """
    content = read_bound(storage, _path(id_), digest)
    if content is None:
        return None
    told: dict[str, Any] = storage.parsed(_path(id_), content)
    return Findings(**{**told, **{name: tuple(told[name]) for name in ("foreign", "hiding", "lacking")}})


def forget_findings(storage: Storage, id_: str) -> None:
    """Removes the findings."""
    storage.delete(_path(id_))


def _path(id_: str) -> str:
    return f"{ROOT}/mending/{id_}.json"
