"""A verification: what is asked and what Spark finds; both travel as files beside the table's own."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_slshudi.config import Pipeline
from airflow_provider_slshudi.hudi.gateway import hadoop_path
from airflow_provider_slshudi.hudi.storage import Storage
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.job.access import Access
from airflow_provider_slshudi.job.compare import compare
from airflow_provider_slshudi.job.findings import Findings
from airflow_provider_slshudi.job.recount import recount
from airflow_provider_slshudi.ledger.records import Density
from airflow_provider_slshudi.ranges import Range

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Question:
    """What a verification compares the table with.

    Attributes:
        as_of: Hudi's completion time of the newest commit that is compared; what completes later is left out.
        ranges: what was recorded, each [shard, begin, end, instant]; a range's place in the list is its number.
        source: what the service is asked for, each [number, begin, end]; None where it is not asked.
        density: raw bytes per log group that each shard showed lately, by its id as text.
        quarantine: where the quarantine is; None where there is none.
        undecided: instants that are completed in the main table and not yet in the quarantine; their rows are left out.
        replays: instants of replays, which put rows of any range into the main table.
    """

    as_of: str
    ranges: list[tuple[int, int, int, str]]
    source: list[tuple[int, int, int]] | None = None
    density: dict[str, float] = field(default_factory=dict)
    quarantine: str | None = None
    undecided: list[str] = field(default_factory=list)
    replays: list[str] = field(default_factory=list)


def ask(storage: Storage, id_: str, question: Question) -> None:
    """Leaves the question of a verification."""
    storage.write(f"{_folder(id_)}/question.json", json.dumps(asdict(question), separators=(",", ":")).encode())


def take_answer(storage: Storage, id_: str) -> Findings | None:
    """What a verification found, None where it left nothing."""
    content = storage.read(f"{_folder(id_)}/findings.json")
    return None if content is None else Findings.from_json(content)


def forget(storage: Storage, id_: str) -> None:
    """Removes a verification's files."""
    storage.delete_folder(_folder(id_))


def asks_service(storage: Storage, id_: str) -> bool:
    """Whether a verification compares with the service, which takes credentials."""
    return _question(storage, id_).source is not None


def verify(spark: SparkSession, pipeline: Pipeline, storage: Storage, id_: str, access: Access | None) -> None:
    """Compares the table with what was asked, and leaves what it found."""
    question = _question(storage, id_)
    # The quarantine first: whatever its snapshot holds is completed in the main table.
    aside = None if question.quarantine is None else spark.read.format("hudi").load(hadoop_path(question.quarantine))
    table = spark.read.format("hudi").load(hadoop_path(pipeline.table.path))
    # Looked at once the table's snapshot is fixed, so this names every later commit that the snapshot may hold.
    late = [item.time for item in Timeline.load(storage) if (item.completion or "") > question.as_of]
    groups = None
    if question.source is not None and access is not None:
        wanted = [(number, Range(question.ranges[number][0], begin, end)) for number, begin, end in question.source]
        density = {int(shard): Density(size, 0.0) for shard, size in question.density.items()}
        groups = recount(spark, access, pipeline, wanted, density)
    late += question.undecided
    found = compare(spark, table, question.ranges, late, groups, aside, question.replays)
    storage.write(f"{_folder(id_)}/findings.json", found.to_json())


def _question(storage: Storage, id_: str) -> Question:
    return Question(**json.loads(storage.read(f"{_folder(id_)}/question.json") or b""))


def _folder(id_: str) -> str:
    return f".hoodie/slshudi/verify/{id_}"
