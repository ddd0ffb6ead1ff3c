"""The short form of the soak of tables: a few batches beside the services, exact counts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_slshudi.local.process import LocalSls
from tests.soak.maintain import draw, soak

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long


def test_counts_are_exact_where_another_process_serves_the_table(spark: SparkSession, tmp_path: Path) -> None:
    with LocalSls(tmp_path / "sls") as server:
        found = soak(tmp_path, spark, server, batches=6, pause=0.5)
    assert found.faults == []
    assert str(found).startswith("soak of tables: 6 batches, 0 lost, 0 doubled; 18 files written")
    assert any(item["service"] == "cluster" and item["instant"] for item in found.served)
    draw(tmp_path / "plot.svg", found)
    assert (tmp_path / "plot.svg").read_text().count("<polyline") == 7
