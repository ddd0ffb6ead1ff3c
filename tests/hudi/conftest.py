"""A way to Hudi's classes and small tables written by this package's own base-file writer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from airflow_provider_slshudi.config.arrow import arrow_type
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.hudi.client import instants
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.files.basefile import BaseFileWriter
from airflow_provider_slshudi.hudi.schema import table_columns
from airflow_provider_slshudi.storage.files import Storage
from tests.pipelines import ad_events

if TYPE_CHECKING:
    pass


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return ad_events(tmp_path / "table")


@pytest.fixture
def storage(pipeline: Pipeline) -> Storage:
    return Storage(pipeline.table.path)


@pytest.fixture
def opened(gateway: Gateway, pipeline: Pipeline, storage: Storage) -> Callable[[], str]:
    """Opens an instant, INFLIGHT, in a table that is made when there is none."""

    def open_one() -> str:
        if not storage.exists(".hoodie/hoodie.properties"):
            instants.create_table(gateway, pipeline)
        instant = instants.new_instant_time(gateway, storage.uri)
        instants.request(gateway, storage.uri, instant)
        instants.to_inflight(gateway, storage.uri, instant)
        return instant

    return open_one


def event_rows(count: int, days: int = 1, first: int = 0) -> tuple[pa.Table, pa.Array, pa.DictionaryArray]:
    """Rows of the test pipeline's table over some days, with their keys and partition values."""
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    numbers = range(first, first + count)
    times = [start + timedelta(days=number % days) for number in numbers]
    dates = pa.array([time.strftime("%Y-%m-%d") for time in times]).dictionary_encode()
    values: dict[str, Any] = {
        "event_id": [f"event-{number}" for number in numbers],
        "event_time": times,
        "price": [number / 4 for number in numbers],
        "clicks": [None if number % 10 == 0 else number for number in numbers],
        "rest": [[("number", str(number))] for number in numbers],
        "event_date": dates.cast(pa.string()).to_pylist(),
    }
    types = dict(table_columns(ad_events(Path("/nowhere/table"))))
    table = pa.table({name: pa.array(column, arrow_type(types[name])) for name, column in values.items()})
    keys = pa.array([f"0-{number}-0" for number in numbers])
    return table, keys, dates


def write_files(storage: Storage, instant: str, count: int, days: int = 1, first: int = 0) -> list[dict[str, Any]]:
    """Writes rows into base files of an instant; gives the write stats."""
    writer = BaseFileWriter(storage, instant, f"{first}-0-{first}", 1 << 20, still_wanted=lambda: None)
    table, keys, dates = event_rows(count, days, first)
    writer.write(table, keys, "event_date", dates)
    return writer.close()
