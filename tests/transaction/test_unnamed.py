"""Keys that no column names, from the logs to the ledger: told once, and nothing depends on it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from aliyun.log import LogItem, PutLogsRequest

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import LedgerUnavailable
from airflow_provider_slshudi.handover import batch_files, fencing
from airflow_provider_slshudi.handover.batch_files import Attempt, Manifest, Unnamed
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import State, UnnamedKey
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.views.findings import Limits, findings
from tests.scenarios import Scenario, log


def seen(pipeline: Scenario) -> dict[str, UnnamedKey]:
    return {key.key: key for key in pipeline.work.ledger.unnamed_keys()}


def put(pipeline: Scenario, number: int, **more: str) -> None:
    source = pipeline.work.pipeline.source
    item = LogItem(1_700_000_000 + number, contents=[*log(number), *more.items()])
    pipeline.client.put_logs(PutLogsRequest(source.project, source.logstore, "ads", "10.0.0.1", [item]))


def test_a_batch_tells_new_keys_once_and_a_column_ends_it(
    scenario: Callable[..., Scenario], caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = scenario(rest_column=None, keep_values="7d")
    pipeline.put(50)
    with caplog.at_level(logging.WARNING):
        first = pipeline.batch("run-1")
    (city,) = seen(pipeline).values()
    assert (city.key, city.logs, city.looked, city.transaction, city.examples) == ("city", 50, 50, first.id, ["Ulm"])
    assert (
        "no column of ad_events names, so it is dropped: 'city' in 50 of 50 logs looked at, like 'Ulm'" in caplog.text
    )
    assert [event.what for event in pipeline.work.ledger.events(first.id)].count("new keys") == 1
    assert "city" not in json.dumps(dict(first.manifest or {})), "the ledger's history does not grow by keys"

    caplog.clear()
    put(pipeline, 50, campaign="spring")
    with caplog.at_level(logging.WARNING):
        second = pipeline.batch("run-2")
    assert (seen(pipeline)["city"].logs, seen(pipeline)["campaign"].transaction) == (51, second.id)
    assert "'campaign'" in caplog.text and "'city'" not in caplog.text

    described = pipeline.work.pipeline.model_dump(mode="json")
    described["columns"].append({"name": "town", "key": "city"})
    wider = replace(pipeline, work=replace(pipeline.work, pipeline=Pipeline.model_validate(described)))
    put(wider, 51)
    wider.batch("run-3")
    assert list(seen(wider)) == ["campaign"]

    kept = Pipeline.model_validate({**described, "rest_column": "rest"})
    keeping = replace(pipeline, work=replace(pipeline.work, pipeline=kept))
    put(keeping, 52)
    keeping.batch("run-4")
    assert {key.key: key.kept_in for key in seen(keeping).values()} == {"campaign": None}, "it was not seen again"


def test_a_key_that_goes_to_the_rest_column_is_told_once(
    scenario: Callable[..., Scenario], caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = scenario()
    pipeline.put(5)
    pipeline.batch("run-1")
    began = findings(pipeline.work.ledger, pipeline.work.pipeline.name, Limits())
    assert not [said for said in began if "new key" in said], "the keys with which a pipeline begins are no news"
    caplog.clear()
    put(pipeline, 50, campaign="spring")
    with caplog.at_level(logging.WARNING):
        pipeline.batch("run-2")
    assert "names, so it goes to `rest`: 'campaign'" in caplog.text
    (told,) = [said for said in findings(pipeline.work.ledger, "ad_events", Limits()) if "new key" in said]
    assert "so it goes to `rest`: 'campaign' in 1 of 1 logs looked at" in told


def test_an_upsert_tells_them_too(upserts: Callable[..., Scenario]) -> None:
    pipeline = upserts()
    source = pipeline.work.pipeline.source
    contents = [("id", "c1"), ("updated_at", "1"), ("region", "a"), ("nickname", "Bob")]
    items = [LogItem(1_700_000_000, contents=contents) for _ in range(3)]
    pipeline.client.put_logs(PutLogsRequest(source.project, source.logstore, "ads", "10.0.0.1", items))
    assert pipeline.batch("run-1").rows == 3
    found = seen(pipeline)["nickname"]
    assert (found.logs, found.looked, found.examples) == (3, 3, []), "values are kept where the file says so"


def test_a_ledger_that_does_not_take_them_holds_no_batch_up(
    scenario: Callable[..., Scenario], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise LedgerUnavailable("the ledger is away")

    monkeypatch.setattr(Ledger, "save_new_keys", refuse)
    pipeline = scenario(rest_column=None)
    pipeline.put(10)
    with caplog.at_level(logging.WARNING):
        assert pipeline.batch("run-1").state is State.COMMITTED
    assert "was not told which keys of logs no column names: the ledger is away" in caplog.text


def test_a_manifest_of_an_older_version_has_none(tmp_path: Path) -> None:
    storage = Storage(f"file://{tmp_path}")
    told = Manifest("t1", 1, "20260101000000000", [], [], unnamed=Unnamed(9, {"city": 3}, {"city": ["Ulm"]}))
    batch_files.write_manifest(storage, told)
    attempt = Attempt(storage, "t1", told.instant, 1)
    assert attempt.manifest()[0] == told

    older = {name: value for name, value in asdict(told).items() if name != "unnamed"}
    file = Path(storage.full(f"{fencing.folder(told.instant)}/manifest-1.json"))
    file.write_text(json.dumps(older))
    assert attempt.manifest()[0] == replace(told, unnamed=Unnamed())
