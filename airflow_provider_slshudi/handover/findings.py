"""What a driver found and left for the process that asked: shards' start positions, quarantined logs, differences of
Hudi's metadata table.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from airflow_provider_slshudi.handover import ROOT
from airflow_provider_slshudi.handover.bound import digest_of, read_bound
from airflow_provider_slshudi.storage.files import Storage


def write_start_positions(storage: Storage, pipeline: str, content: str) -> None:
    """Keeps where the pipeline's duty for each shard begins."""
    storage.write(start_positions_path(pipeline), content.encode())


def read_start_positions(storage: Storage, pipeline: str) -> bytes | None:
    """The file with the pipeline's duties, None where there is none."""
    return storage.read(start_positions_path(pipeline))


def start_positions_path(pipeline: str) -> str:
    """Where the pipeline's duties are kept."""
    return f"{ROOT}/shards/{pipeline}.json"


def leave_counts(storage: Storage, id_: str, counts: Sequence[dict[str, Any]]) -> None:
    """Leaves the counts beside the main table."""
    storage.write(_answer(id_), json.dumps(counts).encode())


def take_counts(storage: Storage, id_: str) -> list[dict[str, Any]]:
    """Returns the counts and removes their file."""
    counts: list[dict[str, Any]] = storage.read_json(_answer(id_)) or []
    storage.delete(_answer(id_))
    return counts


def _answer(id_: str) -> str:
    return f"{ROOT}/quarantine-{id_}.json"


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
    storage.write(_mending_path(id_), json.dumps(asdict(found)).encode())


def take_findings(storage: Storage, id_: str) -> tuple[Findings, str] | None:
    """The findings and their SHA-256, None where none were left."""
    content = storage.read(_mending_path(id_))
    digest = "" if content is None else digest_of(content)
    findings = read_findings(storage, id_, digest)
    return None if findings is None else (findings, digest)


def read_findings(storage: Storage, id_: str, digest: str) -> Findings | None:
    """The findings whose SHA-256 is `digest`, None where none were left.

    Raises:
        ManifestError: the findings there are others.
    """
    content = read_bound(storage, _mending_path(id_), digest)
    if content is None:
        return None
    report: dict[str, Any] = storage.parsed(_mending_path(id_), content)
    return Findings(**{**report, **{name: tuple(report[name]) for name in ("foreign", "hiding", "lacking")}})


def forget_findings(storage: Storage, id_: str) -> None:
    """Removes the findings."""
    storage.delete(_mending_path(id_))


def _mending_path(id_: str) -> str:
    return f"{ROOT}/mending/{id_}.json"


EXAMPLES = 5
COUNTS = ("files", "lacking", "gone", "differing", "leftovers", "unknown")
"""The numbers of a `Comparison`."""


@dataclass(frozen=True)
class Comparison:
    """How the metadata table differs from the files on storage: how many of each kind, and a few paths as examples.

    Attributes:
        files: files of completed instants on storage.
        lacking: how many of these the metadata table lacks: no reader sees their rows.
        gone: files that it lists and storage lacks: queries fail.
        differing: files that it lists with a wrong length.
        leftovers: files of rolled-back instants: they hold no rows of the table and should be deleted.
        unknown: files of instants from before the timeline's begin that were neither archived nor rolled back.
        ahead: the newest time on its timeline, as Hudi writes times, if no run may write until then; else empty.
        unreadable: why the metadata table cannot be read; empty also where there is none, which is no damage.
    """

    files: int
    lacking: int = 0
    gone: int = 0
    differing: int = 0
    examples: tuple[str, ...] = ()
    unreadable: str = ""
    leftovers: int = 0
    unknown: int = 0
    ahead: str = ""

    @property
    def ok(self) -> bool:
        """Whether readers with it and readers without it see the same files, and writers go on."""
        counted = self.lacking or self.gone or self.differing or self.leftovers or self.unknown
        return not (counted or self.unreadable or self.ahead)

    def joined(self, called: str, other: Comparison) -> Comparison:
        """Adds what was found of the metadata table of a table beside; its examples say what it is `called`."""
        numbers = {name: getattr(self, name) + getattr(other, name) for name in COUNTS}
        of_it = tuple(f"{called}: {example}" for example in other.examples)
        why = [self.unreadable, f"{called}: {other.unreadable}" if other.unreadable else ""]
        return Comparison(
            **numbers,
            examples=(*self.examples, *of_it)[:EXAMPLES],
            unreadable="; ".join(filter(None, why)),
            ahead=max(self.ahead, other.ahead),
        )


def leave_comparison(storage: Storage, id_: str, found: Comparison) -> None:
    """Leaves what a comparison found."""
    storage.write(_metadata_path(id_), json.dumps(asdict(found)).encode())


def take_comparison(storage: Storage, id_: str) -> Comparison | None:
    """What a comparison found, None where it left nothing."""
    comparison = storage.read_json(_metadata_path(id_))
    if comparison is None:
        return None
    storage.delete(_metadata_path(id_))
    return Comparison(**{**comparison, "examples": tuple(comparison["examples"])})


def _metadata_path(id_: str) -> str:
    return f"{ROOT}/metadata/{id_}.json"
