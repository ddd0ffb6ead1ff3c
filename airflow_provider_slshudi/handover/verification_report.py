"""A verification's question to Spark, and its findings; both travel as files beside the table's own."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_provider_slshudi.handover import ROOT
from airflow_provider_slshudi.handover.bound import read_bound, write_bound
from airflow_provider_slshudi.storage.files import Storage


@dataclass(frozen=True, slots=True)
class RangeFound:
    """The rows of one recorded range.

    Attributes:
        number: the range's place in the question.
        rows: all rows whose key lies in the range.
        distinct: distinct row keys, those of `erased` rows too.
        own: distinct row keys with a row that the range's instant, or a replay, wrote; those of `erased` rows too.
        quarantined: how many of `rows` are in the quarantine.
        erased: rows that the range's instant, or a replay, wrote and an accepted erasure took.
        example: the key of a row that is there twice or was written under another instant.
        groups: log groups that the service still holds; it was asked for those alone.
        logs: logs in these log groups that are to have a row.
        filtered: logs in them that the batch's condition leaves out.
        lacking: logs in them that have no row.
        strange: distinct row keys in them whose log group has no log of that index that is to have a row.
        lacking_at, strange_at: the first cursor of such a log or key.
    """

    number: int
    rows: int
    distinct: int
    own: int
    quarantined: int
    erased: int
    example: str | None
    groups: int
    logs: int
    filtered: int
    lacking: int
    strange: int
    lacking_at: int | None
    strange_at: int | None


@dataclass(frozen=True, slots=True)
class Outside:
    """Rows whose key lies in no recorded range, and one such key; `shard` is None where the key names none."""

    shard: int | None
    rows: int
    example: str | None


@dataclass(frozen=True, slots=True)
class Findings:
    """All findings; ranges without rows and log groups are left out."""

    ranges: list[RangeFound]
    outside: list[Outside]

    def to_json(self) -> bytes:
        """As the content of a file."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, content: bytes) -> Findings:
        """What `to_json` wrote."""
        data = json.loads(content)
        return cls([RangeFound(**item) for item in data["ranges"]], [Outside(**item) for item in data["outside"]])


@dataclass(frozen=True)
class Question:
    """What a verification compares the table with.

    Attributes:
        as_of: Hudi's completion time of the newest commit that is compared; later ones are left out.
        ranges: the recorded ranges, each [shard, begin, end, instant]; a range's place in the list is its number.
        source: the ranges to ask the service for, each [number, begin, end]; None where it is not asked.
        density: each shard's recent raw bytes per log group, by its id as text.
        quarantine: where the quarantine is; None where there is none.
        routes: the tables of routes, each [name, where it is]; a route whose `path` was changed has several.
        undecided: instants that were not completed, in the main table or in the quarantine; their rows are left out.
        replays: instants of replays, which put rows of any range into the main table.
        filters: the conditions by which logs were left out, as `shaping.conditions.described` tells them.
        filter_of: the place of a range's filter, by its number as text; not of a range whose logs are all kept.
    """

    as_of: str
    ranges: list[tuple[int, int, int, str]]
    source: list[tuple[int, int, int]] | None = None
    density: dict[str, float] = field(default_factory=dict)
    quarantine: str | None = None
    routes: list[tuple[str, str]] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    replays: list[str] = field(default_factory=list)
    filters: list[dict[str, Any]] = field(default_factory=list)
    filter_of: dict[str, int] = field(default_factory=dict)


def ask(storage: Storage, id_: str, question: Question) -> str:
    """Leaves the question of a verification; returns its SHA-256."""
    content = json.dumps(asdict(question), separators=(",", ":")).encode()
    return write_bound(storage, f"{_folder(id_)}/question.json", content)


def answer(storage: Storage, id_: str, found: Findings) -> None:
    """Leaves what a verification found."""
    storage.write(f"{_folder(id_)}/findings.json", found.to_json())


def take_answer(storage: Storage, id_: str) -> Findings | None:
    """What a verification found, None where it left nothing."""
    content = storage.read(f"{_folder(id_)}/findings.json")
    return None if content is None else Findings.from_json(content)


def forget(storage: Storage, id_: str) -> None:
    """Removes a verification's files."""
    storage.delete_folder(_folder(id_))


def question(storage: Storage, id_: str, digest: str) -> Question:
    """The question of a verification.

    Raises:
        ManifestError: its SHA-256 is not `digest`.
    """
    return Question(**json.loads(read_bound(storage, f"{_folder(id_)}/question.json", digest) or b""))


def _folder(id_: str) -> str:
    return f"{ROOT}/verify/{id_}"
