"""`slshudi schema diff` and `suggest`, by connections and a real logstore."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from aliyun.log import LogItem, PutLogsRequest

from airflow_provider_slshudi import cli
from airflow_provider_slshudi.config.load import parse_pipeline
from airflow_provider_slshudi.hooks.ledger import LedgerHook
from airflow_provider_slshudi.hudi.schema import avro_schema
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.planning.ranges import Range
from tests.local.sdk import by_ip
from tests.machine import connection
from tests.pipelines import ad_events
from tests.seen import committed, registered

PROJECT, LOGSTORE = "schemas", "city-events"


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the command sets for its process is undone after the test."""
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
    monkeypatch.setenv("AIRFLOW__LOGGING__LOGGING_LEVEL", "WARNING")


@pytest.fixture
def logstore(sls: LocalSls, monkeypatch: pytest.MonkeyPatch) -> str:
    """A logstore of 40 logs, which the default connection leads to."""
    of = sls.connection()
    made = connection("sls", host=of.endpoint, login=of.access_key_id, password=of.access_key_secret.reveal())
    monkeypatch.setenv("AIRFLOW_CONN_SLS_DEFAULT", made)
    client = by_ip(of)
    client.create_project(PROJECT, "tests")
    client.create_logstore(PROJECT, LOGSTORE, ttl=7, shard_count=2)
    for number in range(40):
        contents = [("Event Id", str(number)), ("at", f"2026-01-31T08:00:{number:02}Z"), ("odd: #key", "x: # 'y'\n")]
        contents += [("price", "1.5")] if number % 4 == 0 else []
        item = LogItem(1_767_225_600 + number, contents=contents)
        client.put_logs(PutLogsRequest(PROJECT, LOGSTORE, "", "10.0.0.1", [item]))
    return LOGSTORE


def slshudi(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code = cli.main(arguments)
    told = capsys.readouterr()
    return code, json.loads(told.out) if "--json" in arguments else told.out + told.err


def test_the_file_of_a_new_pipeline_is_suggested_and_what_a_file_leaves_out(
    logstore: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = slshudi(capsys, "schema", "suggest", "--project", PROJECT, "--logstore", logstore)
    pipeline = parse_pipeline(text, "suggested")
    assert code == 0 and (pipeline.name, pipeline.source.logstore) == ("city_events", LOGSTORE)
    types = {column.name: (column.source_key, column.type, column.format) for column in pipeline.columns}
    assert types == {
        "log_time": ("__time__", "timestamp", "seconds"),
        "source": ("__source__", "string", None),
        "event_id": ("Event Id", "int", None),
        "at": ("at", "timestamp", "iso8601"),
        "odd_key": ("odd: #key", "string", None),
        "price": ("price", "double", None),
    }
    assert "# in 25.0% of the logs, like '1.5'" in text

    # A pipeline that has the file and lacks two of its columns.
    described = yaml.safe_load(text)
    described["columns"] = [c for c in described["columns"] if c["name"] not in ("at", "price")]
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(described))
    code, told = slshudi(capsys, "schema", "suggest", str(file), "--groups", "5", "--json")
    assert (code, told["pipeline"], told["logs"]) == (0, "city_events", 20)
    assert [item["column"] for item in told["keys"]] == [
        {"name": "at", "type": "timestamp", "format": "iso8601"},
        {"name": "price", "type": "double"},
    ]
    code, text = slshudi(capsys, "schema", "suggest", str(file))
    described["columns"] += yaml.safe_load(text)["columns"]
    assert len(parse_pipeline(yaml.safe_dump(described), "both").columns) == 6


def test_keys_that_batches_saw_and_no_column_names_are_listed(
    ledger_connection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger, file = LedgerHook().ledger(), tmp_path / "ad_events.yaml"
    registered(ledger, "ad_events")
    done = committed(ledger, "ad_events", [Range(0, 0, 10)], "run-1")
    ledger.save_new_keys("ad_events", done.id, 512, {"city": 37, "zip": 2}, {"city": ["Ulm"]}, set())

    def listed(*more: str, **changes: Any) -> Any:
        described = ad_events(tmp_path / "table", rest_column=None).model_dump(mode="json", exclude_none=True)
        file.write_text(yaml.safe_dump({**described, **changes}))
        code, told = slshudi(capsys, "schema", "unnamed", str(file), *more)
        assert code == 0
        return told

    city, zip_ = listed("--json")["keys"]
    assert (city["key"], city["logs"], city["looked"], city["examples"]) == ("city", 37, 512, ["Ulm"])
    assert (city["transaction"], zip_["key"]) == (done.id, "zip")
    assert "'Ulm'" in listed() and "keys that no column names" in listed()
    # What the file names by now is not listed, before any batch.
    columns = [*ad_events(tmp_path / "table").model_dump(mode="json", exclude_none=True)["columns"], {"name": "zip"}]
    assert [key["key"] for key in listed("--json", columns=columns)["keys"]] == ["city"]
    assert {key["kept_in"] for key in listed("--json")["keys"]} == {None}
    assert {key["kept_in"] for key in listed("--json", rest_column="rest")["keys"]} == {"rest"}


def test_suggest_needs_a_pipeline_or_a_logstore(capsys: pytest.CaptureFixture[str]) -> None:
    code, told = slshudi(capsys, "schema", "suggest", "--project", PROJECT)
    assert code == 1 and "give a pipeline, or --project and --logstore" in told


def test_what_a_file_changes_in_its_table_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "table"
    made = ad_events(table)
    file = tmp_path / "ad_events.yaml"

    def diff(**types: str) -> tuple[int, Any]:
        described = made.model_dump(mode="json", exclude_none=True)
        described["columns"] = [{**c, "type": types.get(c["name"], c["type"])} for c in described["columns"]]
        file.write_text(yaml.safe_dump(described))
        return slshudi(capsys, "schema", "diff", str(file), "--json")

    assert diff() == (0, {"pipeline": "ad_events", "table": made.table.path, "exists": False, "changes": []})
    (table / ".hoodie" / "timeline").mkdir(parents=True)
    properties = "hoodie.table.create.schema=" + avro_schema(made).replace(":", "\\:")
    (table / ".hoodie" / "hoodie.properties").write_text(properties)
    assert diff() == (0, {"pipeline": "ad_events", "table": made.table.path, "exists": True, "changes": []})
    code, told = diff(clicks="boolean")
    assert code == 1
    assert [(c["column"], c["kind"], c["there"], c["wanted"]) for c in told["changes"]] == [
        ("clicks", "refused", "bigint", "boolean")
    ]
    code, text = slshudi(capsys, "schema", "diff", str(file))
    assert code == 1 and "refused" in text and "bigint" in text
