"""A batch brought to a state, what is in its table, and what a list of tests names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_slshudi.ledger.records import Transaction
from airflow_provider_slshudi.transaction import steps
from airflow_provider_slshudi.transaction.decisions import Decision
from airflow_provider_slshudi.transaction.settle import register, settle
from tests.scenarios import Scenario

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


TESTS = Path(__file__).parents[1]


def unproven(proven: dict[str, tuple[str, ...]], file: str) -> list[str]:
    """The tests that a list names and that do not exist."""
    missing = []
    for name in {name for names in proven.values() for name in names}:
        where, _, test = name.rpartition("::")
        source = (TESTS / (where or file)).read_text(encoding="utf-8")
        if not re.search(rf"^def {test}\(", source, re.MULTILINE):
            missing.append(name)
    return missing


def settled(pipeline: Scenario, run_id: str) -> list[Decision]:
    return [item.decision for item in settle(pipeline.by(run_id), lambda run: True)]


def prepared(pipeline: Scenario, run_id: str) -> Transaction:
    """A batch up to PREPARED, nothing settled before."""
    register(pipeline.work)
    return pipeline.prepare(pipeline.by(run_id))


def committed(pipeline: Scenario, run_id: str) -> Transaction:
    """A batch up to COMMITTED, nothing settled before."""
    found = prepared(pipeline, run_id)
    return steps.commit(pipeline.by(run_id), found.id, found.token)


def ids(spark: SparkSession, pipeline: Scenario, **options: str) -> list[str]:
    """The event ids that Spark reads."""
    table = spark.read.format("hudi").options(**options).load(pipeline.work.storage.full(""))
    return sorted(row["event_id"] for row in table.select("event_id").collect())


def events(first: int, end: int) -> list[str]:
    return sorted(f"event-{number}" for number in range(first, end))
