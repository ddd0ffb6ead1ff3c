"""Which partitions are complete, by the pipeline's file and by what the ledger knows of its begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.downstream.completeness import complete
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import LedgerShard, PartitionState
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.planning.watermark import Mark
from tests.ledger.commits import PIPELINE, commit
from tests.ledgers import quick_engine
from tests.pipelines import ad_events

HOUR = 3_600
EIGHT = 1_704_096_000
"""2024-01-01, eight o'clock UTC."""
HALF_PAST = EIGHT + HOUR // 2


def hourly(folder: Path, start: str | int) -> Pipeline:
    partition = {"by": "event_time", "column": "event_time", "every": "hour", "lateness": "600s"}
    table = {"path": f"file://{folder}/lake", "name": "ad_events", "partition": partition}
    return ad_events(
        folder, name=PIPELINE, table=table, source={"project": "ads", "logstore": "events", "start": start}
    )


@pytest.mark.parametrize(
    ("start", "edited"), [("end", "begin"), ("end", EIGHT), (HALF_PAST, EIGHT), (HALF_PAST, "begin")]
)
def test_a_start_that_is_edited_later_makes_no_hour_whole(tmp_path: Path, start: str | int, edited: str | int) -> None:
    pipeline = hourly(tmp_path, start)
    with quick_engine(tmp_path) as engine:
        ledger, name = Ledger(engine), pipeline.name
        ledger.register(name, pipeline.source.identity, pipeline.table.path)
        ledger.save_shards(name, [LedgerShard(0, "readwrite", "", "", 5_000, 5_000)])
        ledger.save_look(name, HALF_PAST, {0: [Mark(5_000, HALF_PAST)]}, 10, start)
        ledger.save_shards(name, [LedgerShard(0, "readwrite", "", "", 5_000, 5_050)])
        ledger.save_look(name, EIGHT + HOUR + 700, {0: [Mark(5_050, EIGHT + HOUR + 700)]}, 10, edited)
        commit(ledger, [Range(0, 5_000, 5_050)], {"event_date=2024-01-01-08": 50})
        assert complete(ledger, hourly(tmp_path, edited)) == []
        assert [item.state for item in ledger.partitions(name, 0, EIGHT + HOUR)] == [PartitionState.PARTIAL]


def test_hours_of_a_source_that_was_corrected_before_the_first_commit_are_not_those_of_the_new_one(
    tmp_path: Path,
) -> None:
    pipeline, looked = hourly(tmp_path, "begin"), EIGHT + 2 * HOUR + 700
    with quick_engine(tmp_path) as engine:
        ledger, name = Ledger(engine), pipeline.name
        ledger.register(name, "sls://ads/misspelt", pipeline.table.path)
        ledger.save_shards(name, [LedgerShard(0, "readwrite", "", "", 0, 0)])
        ledger.save_look(name, EIGHT - 60, {0: [Mark(0, EIGHT - 60)]}, 10, "begin")
        ledger.save_look(name, looked, {0: [Mark(0, looked)]}, 10, "begin")
        assert [item.rows for item in complete(ledger, pipeline)] == [0, 0]
        ledger.register(name, pipeline.source.identity, pipeline.table.path)
        assert ledger.partitions(name, 0, looked) == []
