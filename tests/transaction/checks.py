"""What every scenario of failures ends with."""

from __future__ import annotations

import pyarrow as pa

from airflow_provider_slshudi.hudi.instant_metadata import PIPELINE_KEY
from airflow_provider_slshudi.hudi.layout import Phase
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger.records import State, Transaction
from airflow_provider_slshudi.planning.ranges import Range
from tests.scenarios import Scenario

NAME = "ad_events"


def phase(pipeline: Scenario, transaction: Transaction) -> Phase | None:
    found = Timeline.load(pipeline.work.storage).get(transaction.instant or "")
    return found.phase if found else None


def assert_exact(pipeline: Scenario, logs: int) -> None:
    """A next batch is healthy, each of `logs` logs and its ten are in the table once, and ledger and table agree."""
    from hudi import HudiTableBuilder

    pipeline.put(10, first=logs)
    assert pipeline.batch("run-after").state is State.COMMITTED
    rows = pa.Table.from_batches(HudiTableBuilder.from_base_uri(pipeline.work.storage.uri).build().read())
    assert sorted(rows["event_id"].to_pylist()) == sorted(f"event-{number}" for number in range(logs + 10))
    ledger, service, timeline = pipeline.work.ledger, pipeline.work.connect(), Timeline.load(pipeline.work.storage)
    assert (ledger.live(NAME), ledger.reserved(NAME), timeline.pending()) == ([], [], [])
    told = {item.instant for item in ledger.last(NAME, 100, State.COMMITTED)}
    assert told == {item.time for item in timeline.completed("commit") if PIPELINE_KEY in timeline.extra_metadata(item)}
    held = {item.id: (service.begin(item.id), service.end(item.id)) for item in service.shards()}
    assert ledger.coverage(NAME) == [Range(shard, *span) for shard, span in held.items() if span[0] < span[1]]
