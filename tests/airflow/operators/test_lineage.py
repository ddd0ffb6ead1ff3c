"""What OpenLineage is told of batches: datasets, columns, counts; asked of operators as Airflow's provider asks."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.openlineage.extractors import OperatorLineage
from airflow.providers.openlineage.extractors.base import DefaultExtractor
from airflow.sdk import DAG
from openlineage.client.serde import Serde

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Kind, RangeTotals, Transaction
from airflow_provider_slshudi.operators import lineage as told
from airflow_provider_slshudi.operators.batch import SlsHudiCommitOperator
from airflow_provider_slshudi.operators.events import settled_alias, tell
from airflow_provider_slshudi.operators.lineage import LineageTask, table_name
from airflow_provider_slshudi.operators.repair import SlsHudiRepairOperator
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.sensors.settle import SlsHudiSettleSensor
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.decisions import Decision
from airflow_provider_slshudi.transaction.settle import Settled
from tests import seen
from tests.airflow.operators.runs import AssetEvents, in_run

LOGSTORE = {"namespace": "sls://ads", "name": "events"}
Json = dict[str, Any]


def commit_task() -> SlsHudiCommitOperator:
    return SlsHudiCommitOperator(task_id="commit", pipeline="ad_events", transaction={})


def recorded(work: Work, kind: Kind, ranges: list[Range], rows: int, **facts: object) -> Transaction:
    """A committed transaction of this run with a manifest of the test's own."""
    ledger = work.ledger
    begun = ledger.begin(work.pipeline.name, kind, ranges, work.run.dag_id, work.run.run_id)
    ledger.opened(begun.id, begun.token, begun.id.replace("T", "")[:17])
    share = rows // max(len(ranges), 1)
    ledger.prepared(begun.id, begun.token, facts, [RangeTotals(item, share, 100 * share, 1, 2) for item in ranges])
    return ledger.committed(begun.id, begun.token, f"{begun.id.replace('T', '')[:17]}9")


def remembering(task: LineageTask, work: Work, *committed: Transaction) -> LineageTask:
    """A task that has committed."""
    task._work = work
    task.remember(work, committed)
    return task


def as_json(found: OperatorLineage[Any, Any]) -> tuple[list[Json], list[Json]]:
    """Inputs and outputs as they are sent."""
    inputs, outputs = (
        [json.loads(Serde.to_json(item)) for item in datasets] for datasets in (found.inputs, found.outputs)
    )
    return inputs, outputs


def complete(task: Any) -> tuple[list[Json], list[Json]]:
    """Inputs and outputs of a task that has succeeded."""
    found = DefaultExtractor(task).extract_on_complete(None)
    assert found is not None
    return as_json(found)


def without_spec(facet: Json) -> Json:
    return {name: value for name, value in facet.items() if not name.startswith("_")}


def test_a_commit_names_what_was_read_and_what_was_written(work: Work) -> None:
    batch = seen.committed(work.ledger, "ad_events", [Range(1, 5, 9), Range(0, 10, 40)], "run-1")
    (logs,), (table,) = complete(remembering(commit_task(), work, batch))
    assert {name: logs[name] for name in ("namespace", "name")} == LOGSTORE
    statistics = without_spec(logs["inputFacets"]["inputStatistics"])
    assert statistics == {"rowCount": 340, "size": 34_000}, "logs, and their raw bytes"
    assert without_spec(logs["inputFacets"]["subset"])["inputCondition"] == {
        "type": "partition",
        "partitions": [
            {"dimensions": {"shard": "0", "begin": "10", "end": "40"}, "identifier": "0:[10, 40)"},
            {"dimensions": {"shard": "1", "begin": "5", "end": "9"}, "identifier": "1:[5, 9)"},
        ],
    }
    assert (table["namespace"], table["name"]) == ("file", work.pipeline.table.path.removeprefix("file://"))
    statistics = without_spec(table["outputFacets"]["outputStatistics"])
    assert statistics == {"rowCount": 340, "size": 5_000, "fileCount": 2}
    assert without_spec(table["facets"]["version"]) == {"datasetVersion": batch.instant}


def test_each_logstore_is_an_input_with_the_ranges_of_its_own_shards(work: Work) -> None:
    also = [{"project": "ads-eu", "logstore": "events"}]
    source = work.pipeline.source.model_validate({**work.pipeline.source.model_dump(), "also": also})
    work = replace(work, pipeline=work.pipeline.model_copy(update={"source": source}))
    batch = recorded(work, Kind.TAIL, [Range(0, 10, 40), Range(1_000_003, 5, 9)], 340, files=2)
    found = told.lineage(work.pipeline, [told.Batch(batch, work.ledger.ranges(batch.id))])
    inputs, (table,) = as_json(found)
    assert [(item["namespace"], item["name"]) for item in inputs] == [
        ("sls://ads", "events"),
        ("sls://ads-eu", "events"),
    ]
    parts = [item["inputFacets"]["subset"]["inputCondition"]["partitions"] for item in inputs]
    assert [[part["dimensions"]["shard"] for part in found] for found in parts] == [["0"], ["3"]]
    assert all("inputStatistics" not in item["inputFacets"] for item in inputs), "counts are of all of them"
    fields = table["facets"]["columnLineage"]["fields"]["event_id"]["inputFields"]
    assert [item["namespace"] for item in fields] == ["sls://ads", "sls://ads-eu"]


def test_before_a_commit_and_after_one_that_failed_only_the_datasets_are_known(work: Work, pipelines: Path) -> None:
    with DAG("tail"):
        task = commit_task()
    extractor = DefaultExtractor(task)
    for found in (extractor.extract(), extractor.extract_on_failure(None)):
        assert found is not None
        (logs,), (table,) = as_json(found)
        assert logs["inputFacets"] == table["outputFacets"] == {}
        assert set(logs["facets"]) == {"schema"} and set(table["facets"]) == {"schema", "columnLineage"}


def test_all_batches_that_a_settle_tells_are_in_one_event(work: Work, asset_events: AssetEvents) -> None:
    ledger, settle = work.ledger, SlsHudiSettleSensor(task_id="settle", pipeline="ad_events")
    first, second = (seen.committed(ledger, "ad_events", [Range(0, at, at + 3)], f"run-{at}") for at in (0, 3))
    found = [Settled(item.id, item.instant, Decision.RECOMMIT) for item in (second, first)]
    remembering(settle, work, *tell([settled_alias(work.pipeline)], in_run(("tail", "now")), work, found))
    (logs,), (table,) = complete(settle)
    assert logs["inputFacets"]["inputStatistics"]["rowCount"] == 60
    assert [part["identifier"] for part in logs["inputFacets"]["subset"]["inputCondition"]["partitions"]] == [
        *("0:[0, 3)", "0:[3, 6)"),
    ]
    assert table["outputFacets"]["outputStatistics"]["fileCount"] == 4
    assert table["facets"]["version"]["datasetVersion"] == second.instant


def test_a_settle_that_committed_nothing_names_no_dataset(work: Work) -> None:
    assert complete(SlsHudiSettleSensor(task_id="settle", pipeline="ad_events")) == ([], [])


def test_logs_in_quarantine_are_rows_of_another_table(work: Work) -> None:
    batch = recorded(work, Kind.TAIL, [Range(0, 0, 4)], 100, quarantined=7, files=1, stored=900)
    _, (table, aside) = complete(remembering(commit_task(), work, batch))
    assert table["outputFacets"]["outputStatistics"]["rowCount"] == 93
    assert aside["name"] == f"{table['name']}_quarantine"
    assert without_spec(aside["outputFacets"]["outputStatistics"]) == {"rowCount": 7}
    assert {field["name"] for field in aside["facets"]["schema"]["fields"]} >= {"shard", "cursor", "contents"}


def test_rows_without_a_key_were_read_and_not_written(work: Work) -> None:
    batch = recorded(work, Kind.BACKFILL, [Range(0, 0, 4)], 100, dropped=40, files=1)
    (logs,), (table,) = complete(remembering(commit_task(), work, batch))
    assert logs["inputFacets"]["inputStatistics"]["rowCount"] == 100
    statistics = without_spec(table["outputFacets"]["outputStatistics"])
    assert statistics == {"rowCount": 60, "fileCount": 1}, "the bytes are not known"


def test_a_replay_reads_the_quarantine(work: Work) -> None:
    replay = recorded(work, Kind.REPLAY, [], 0, moved=12, files=1, stored=800)
    repair = SlsHudiRepairOperator(task_id="repair", pipeline="ad_events")
    (aside,), (table,) = complete(remembering(repair, work, *repair._made(work)))
    assert (aside["name"], aside["inputFacets"]) == (f"{table['name']}_quarantine", {})
    assert table["outputFacets"]["outputStatistics"]["rowCount"] == 12
    assert table["facets"]["version"]["datasetVersion"] == replay.instant
    assert "columnLineage" not in table["facets"], "which column of the quarantine has which key, no file says"


def test_an_act_that_made_no_batch_names_no_dataset(work: Work) -> None:
    seen.committed(work.ledger, "ad_events", [Range(0, 0, 3)], "of another run")
    repair = SlsHudiRepairOperator(task_id="repair", pipeline="ad_events")
    assert complete(remembering(repair, work, *repair._made(work))) == ([], [])


def test_a_gap_was_not_read_and_too_many_ranges_are_not_listed(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    ranges = [Range(0, 0, 3, gap=True), Range(0, 3, 4), Range(1, 0, 1)]
    batch = seen.committed(work.ledger, "ad_events", ranges, "run-1")
    (logs,), _ = complete(remembering(commit_task(), work, batch))
    parts = logs["inputFacets"]["subset"]["inputCondition"]["partitions"]
    assert [part["identifier"] for part in parts] == ["0:[3, 4)", "1:[0, 1)"]
    monkeypatch.setattr(told, "_MOST_RANGES", 1)
    (logs,), _ = complete(remembering(commit_task(), work, batch))
    assert set(logs["inputFacets"]) == {"inputStatistics"}, "some of them would seem to be all"


def test_each_column_comes_from_a_key_and_says_how(work: Work) -> None:
    described = work.pipeline.model_dump()
    described["columns"] = [
        {"name": "event_id"},
        {"name": "user", "key": "who", "renamed_from": ["user_id"]},
        {"name": "price", "key": "payload", "path": "$.items[0].price", "type": "decimal(9,2)"},
        {"name": "event_time", "type": "timestamp", "format": "iso8601", "timezone": "Asia/Shanghai"},
    ]
    described["catalog"] = {"metastore": "thrift://one:9083,thrift://two:9083", "database": "lake"}
    found = told.lineage(Pipeline.model_validate(described))
    (logs,), (table,) = as_json(found)
    assert [field["name"] for field in logs["facets"]["schema"]["fields"]] == [
        *("event_id", "who", "payload", "event_time"),
    ]
    columns = table["facets"]["columnLineage"]["fields"]
    sources = {name: column["inputFields"] for name, column in columns.items()}
    assert all({key: source[key] for key in LOGSTORE} == LOGSTORE for (source,) in sources.values())
    assert {name: (source["field"], source["transformations"]) for name, (source,) in sources.items()} == {
        "event_id": ("event_id", [{"type": "DIRECT", "subtype": "IDENTITY"}]),
        "user": ("who", [{"type": "DIRECT", "subtype": "IDENTITY"}]),
        "user_id": ("who", [{"type": "DIRECT", "subtype": "IDENTITY"}]),
        "price": ("payload", [transformed("$.items[0].price as decimal(9,2)")]),
        "event_time": ("event_time", [transformed("value as timestamp (iso8601, Asia/Shanghai)")]),
        "event_date": ("event_time", [transformed("day of event_time, UTC")]),
    }
    schema = [(field["name"], field["type"]) for field in table["facets"]["schema"]["fields"]]
    assert schema == [
        *(("event_id", "string"), ("user", "string"), ("user_id", "string"), ("price", "decimal(9,2)")),
        *(("event_time", "timestamp"), ("rest", "map<string,string>"), ("event_date", "string")),
    ]
    assert table["facets"]["symlinks"]["identifiers"] == [
        {"namespace": "hive://one:9083", "name": "lake.ad_events", "type": "TABLE"}
    ]


def transformed(description: str) -> Json:
    return {"type": "DIRECT", "subtype": "TRANSFORMATION", "description": description}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("file:///lake/a b", ("file", "/lake/a b")),
        ("file:/lake/events", ("file", "/lake/events")),
        ("s3://bucket/lake/events", ("s3://bucket", "lake/events")),
        ("s3a://bucket/lake/events", ("s3://bucket", "lake/events")),
        ("s3a://key:secret@bucket/events", ("s3://bucket", "events")),
        ("oss://bucket/lake/events", ("oss://bucket", "lake/events")),
    ],
)
def test_a_table_has_the_name_by_which_others_find_it(path: str, name: tuple[str, str]) -> None:
    assert table_name(path) == name


def test_where_nobody_asks_nothing_is_read(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = seen.committed(work.ledger, "ad_events", [Range(0, 0, 3)], "run-1")
    monkeypatch.setattr(told, "_PROVIDER", "airflow.providers.none_such")

    def read(*_: object) -> None:
        pytest.fail("the ledger was asked")

    monkeypatch.setattr(Ledger, "get", read)
    remembering(commit_task(), work, batch)


def test_a_ledger_that_is_away_changes_nothing(
    work: Work, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    batch = seen.committed(work.ledger, "ad_events", [Range(0, 0, 3)], "run-1")

    def away(*_: object) -> None:
        raise OSError("the database is away")

    monkeypatch.setattr(Ledger, "get", away)
    with caplog.at_level(logging.WARNING):
        task = remembering(commit_task(), work, batch)
    assert "lineage is not told what was committed: the database is away" in caplog.text
    assert complete(task) == ([], [])


def test_dags_are_parsed_and_steps_made_without_a_trace_of_it() -> None:
    code = (
        "import sys\n"
        "import airflow_provider_slshudi.dag.factories\n"
        "assert airflow_provider_slshudi.dag.factories.SlsHudiCommitOperator.get_openlineage_facets_on_complete\n"
        "print([name for name in sys.modules if name.partition('.')[0] == 'openlineage'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_tables_of_routes_are_outputs_with_their_rows(work: Work) -> None:
    routes = [{"name": "dear", "where": "price > 20"}, {"name": "cheap", "where": "price < 1"}]
    pipeline = Pipeline.model_validate({**work.pipeline.model_dump(), "routes": routes})
    work = replace(work, pipeline=pipeline)
    batch = recorded(work, Kind.TAIL, [Range(0, 0, 4)], 100, files=2, routed={"route-dear": 30, "route-cheap": 0})
    found = told.lineage(pipeline, [told.Batch(batch, work.ledger.ranges(batch.id))])
    _, (table, *beside) = as_json(found)
    assert table["outputFacets"]["outputStatistics"]["rowCount"] == 70
    assert [item["name"].removeprefix(table["name"]) for item in beside] == ["_dear", "_cheap"]
    assert [item["outputFacets"]["outputStatistics"]["rowCount"] for item in beside] == [30, 0]
    assert all("event_id" in {field["name"] for field in item["facets"]["schema"]["fields"]} for item in beside)
    _, (_, *before) = as_json(told.lineage(pipeline))
    assert [item["outputFacets"] for item in before] == [{}, {}]
