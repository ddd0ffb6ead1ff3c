"""A pipeline with a quarantine, and what is in both of its tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.storage.files import Storage
from tests.scenarios import Scenario

LOGS = 100


def rows_of(uri: str) -> list[dict[str, Any]]:
    """A table's rows as hudi-rs reads it."""
    from hudi import HudiTableBuilder

    batches = HudiTableBuilder.from_base_uri(uri).build().read()
    found: list[dict[str, Any]] = pa.Table.from_batches(batches).to_pylist() if batches else []
    return found


def changed(pipeline: Scenario, **fields: Any) -> Scenario:
    """The same with another pipeline file."""
    described = {**pipeline.work.pipeline.model_dump(mode="json"), **fields}
    return replace(pipeline, work=replace(pipeline.work, pipeline=Pipeline.model_validate(described)))


def of_version(pipeline: Scenario, version: int) -> Scenario:
    """The same with this version of the table in its file."""
    return changed(pipeline, table={**pipeline.work.pipeline.model_dump(mode="json")["table"], "version": version})


def aside(pipeline: Scenario) -> Timeline:
    return Timeline.load(Storage(pipeline.work.pipeline.quarantine_path))


def assert_each_once(pipeline: Scenario, logs: int, unfit: int) -> None:
    """Each log is in one of the two tables."""
    main, quarantined = rows_of(pipeline.work.storage.uri), rows_of(pipeline.work.pipeline.quarantine_path)
    keys = [row["_hoodie_record_key"] for row in [*main, *quarantined]]
    assert (len(main), len(quarantined), len(set(keys))) == (logs - unfit, unfit, logs)
