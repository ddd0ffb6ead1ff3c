"""What is wrong with a table, left by the driver that looked for those that mend it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from airflow_provider_slshudi.notes import ROOT
from airflow_provider_slshudi.storage import Storage


@dataclass(frozen=True)
class Findings:
    """What is wrong with a table.

    Attributes:
        foreign: indexes that somebody made by SQL: no batch gets through.
        hiding: columns that have bounds in Hudi's index and should have none: by some or by functions of them rows are
            hidden, or some files lack the column, which Hudi takes for NULL in whole partitions.
        lacking: columns that the pipeline's file wants bounds of, that all files have, and that have none.
        escaped: whether Hudi is told that folders' names are escaped, which stops Spark at rows without a partition.
        files: base files that Spark refuses to read, or whose statistics hide NaN; their paths within the table.
        looked: how many base files there are.
    """

    foreign: tuple[str, ...] = ()
    hiding: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    escaped: bool = False
    files: tuple[str, ...] = ()
    looked: int = 0

    @property
    def ok(self) -> bool:
        """Whether there is nothing to mend."""
        return not (self.foreign or self.hiding or self.lacking or self.escaped or self.files)


def leave_findings(storage: Storage, id_: str, found: Findings) -> None:
    """Leaves what was found."""
    storage.write(_path(id_), json.dumps(asdict(found)).encode())


def read_findings(storage: Storage, id_: str) -> Findings | None:
    """What was found, None where nothing was left."""
    content = storage.read(_path(id_))
    if content is None:
        return None
    told: dict[str, Any] = json.loads(content)
    return Findings(**{**told, **{name: tuple(told[name]) for name in ("foreign", "hiding", "lacking", "files")}})


def forget_findings(storage: Storage, id_: str) -> None:
    """Removes what was found."""
    storage.delete(_path(id_))


def _path(id_: str) -> str:
    return f"{ROOT}/mending/{id_}.json"
