"""The short form of the soak of tables: a few batches beside the services, exact counts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.exact.outcome import Outcome
from tests.exact.world import log_service
from tests.soak.maintain import draw, soak

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long


def test_counts_are_exact_where_another_process_serves_the_table(spark: SparkSession, tmp_path: Path) -> None:
    with log_service(tmp_path) as server:
        outcome = Outcome()
        found = soak(tmp_path, spark, server, 6, 0.5, outcome)
    assert outcome.ok, str(outcome)
    assert outcome.figures["batches"] == 6 and outcome.notes[0].startswith("18 files written")
    assert any(item["service"] == "cluster" and item["instant"] for item in found.services)
    draw(tmp_path / "plot.svg", found)
    assert (tmp_path / "plot.svg").read_text().count("<polyline") == 7
