"""`slshudi recover`, `verify` and `ledger show` on real tables; jobs run in the tests' own Spark session."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException
from sqlalchemy import create_engine, update

from airflow_provider_slshudi import cli
from airflow_provider_slshudi.cli import common
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import LeaseHeld
from airflow_provider_slshudi.handover.job_order import Verb
from airflow_provider_slshudi.hooks import work as hooks_work
from airflow_provider_slshudi.hudi.layout import METADATA_FOLDER
from airflow_provider_slshudi.ledger import lease as lease_module
from airflow_provider_slshudi.ledger import models
from airflow_provider_slshudi.ledger.records import SILENT_AFTER, State, Transaction
from airflow_provider_slshudi.operators.maintenance import SlsHudiVerifyOperator
from airflow_provider_slshudi.storage.owners import this_user
from airflow_provider_slshudi.transaction import plan
from airflow_provider_slshudi.transaction.settle import dangling_transactions
from tests.machine import connection
from tests.scenarios import Scenario, forget_all_instants
from tests.transaction.damage import damaged_batch
from tests.transaction.test_erased import run_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGS = 50


@pytest.fixture
def pipeline(scenario: Callable[..., Scenario], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    """A pipeline of one shard with a committed batch and logs for another, which the command line finds."""
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
    monkeypatch.setenv("AIRFLOW__LOGGING__LOGGING_LEVEL", "WARNING")
    ledger = connection("slshudi_ledger", schema=str(tmp_path / "ledger.db"), extra={"dialect": "sqlite"})
    monkeypatch.setenv("AIRFLOW_CONN_SLSHUDI_LEDGER", ledger)
    made = scenario(shards=1)
    made.put(LOGS)
    made.batch("run-1")
    made.put(LOGS, first=LOGS)
    for command in (cli.repair, cli.reports, cli.ledger, cli.table):
        monkeypatch.setattr(command, "work_of", lambda name: made.by("by-hand"))
    return made


@pytest.fixture
def slshudi(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, Any]]:
    """Runs a command; gives its exit code and what it said, parsed where that is JSON."""

    def run(*arguments: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = cli.main(arguments)
        told = capsys.readouterr()
        return code, json.loads(told.out) if "--json" in arguments and told.out else told.out + told.err

    return run


def test_quarantined_logs_are_shown_and_put_back(
    pipeline: Scenario, slshudi: Callable[..., tuple[int, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli.repair, "work_of", lambda name: pipeline.by("by-hand"))
    assert slshudi("quarantine", "show", "ad_events", "--json")[1]["logs"] == []
    assert "nothing was ever quarantined" in slshudi("quarantine", "replay", "ad_events")[1]
    described = {**pipeline.work.pipeline.model_dump(mode="json"), "misfits": "quarantine"}
    work = replace(pipeline.by("by-hand"), pipeline=Pipeline.model_validate(described))
    monkeypatch.setattr(cli.repair, "work_of", lambda name: work)
    replace(pipeline, work=work).batch("run-2")
    code, shown = slshudi("quarantine", "show", "ad_events", "--json")
    assert code == 0 and shown["table"].endswith("_quarantine")
    assert [(item["column"], item["reason"], item["logs"]) for item in shown["logs"]] == [("clicks", "conversion", 5)]
    said = slshudi("quarantine", "show", "ad_events")[1]
    assert "conversion" in said and "2023-11-14 22:14:10" in said
    said = slshudi("quarantine", "replay", "ad_events")[1]
    assert "0 logs went back" in said and "clicks" in said
    # The file says `nullify` again.
    monkeypatch.setattr(cli.repair, "work_of", lambda name: pipeline.by("by-hand"))
    code, done = slshudi("quarantine", "replay", "ad_events", "--since", "2023-11-14T22:14:30", "--json")
    assert code == 0 and (done["moved"], done["left"]) == (3, {})


def fall_silent(transaction: Transaction, tmp_path: Path) -> None:
    """Nobody has worked on the transaction for long."""
    engine = create_engine(f"sqlite:///{tmp_path / 'ledger.db'}")
    long_ago = datetime.now(timezone.utc) - SILENT_AFTER - timedelta(seconds=1)
    with engine.begin() as connected:
        table = models.transactions
        connected.execute(update(table).where(table.c.id == transaction.id).values(heartbeat=long_ago))
    engine.dispose()


def test_a_silent_transaction_is_recovered_and_both_sides_are_told(
    pipeline: Scenario, slshudi: Callable[..., tuple[int, Any]], tmp_path: Path
) -> None:
    prepared = pipeline.prepare(pipeline.by("run-2"))
    fall_silent(prepared, tmp_path)
    code, told = slshudi("recover", "ad_events", "--json")
    (decided,) = told["decided"]
    assert (code, told["pipeline"], told["left"]) == (0, "ad_events", [])
    assert (decided["transaction"], decided["instant"]) == (prepared.id, prepared.instant)
    assert (decided["ledger"], decided["timeline"], decided["decision"]) == ("PREPARED", "INFLIGHT", "RECOMMIT")
    assert decided["by"] == "tail/by-hand" and "the data is there" in decided["why"]
    assert pipeline.work.ledger.get(prepared.id).state is State.COMMITTED

    code, told = slshudi("recover", "ad_events")
    assert code == 0 and "decided: none" in told and "left alone: none" in told
    code, told = slshudi("ledger", "show", prepared.id)
    assert code == 0 and "Decisions, with what was seen on both sides" in told
    (line,) = (line for line in told.splitlines() if "RECOMMIT" in line)
    for seen in ("PREPARED", "INFLIGHT", prepared.instant or "", "the data is there", "tail/by-hand"):
        assert seen in line
    assert "taken over" in told and "token 2" in told and "{" not in told


def test_a_transaction_that_may_be_worked_on_is_left_alone_unless_it_is_named(
    pipeline: Scenario, slshudi: Callable[..., tuple[int, Any]]
) -> None:
    opened = pipeline.open(pipeline.by("run-2"))
    code, told = slshudi("recover", "ad_events", "--json")
    (left,) = told["left"]
    assert (code, told["decided"], left["transaction"], left["state"]) == (1, [], opened.id, "OPEN")
    assert left["run"] == "tail/run-2" and "only after 600 s" in left["why"]
    code, told = slshudi("recover", "ad_events")
    assert code == 1 and opened.id in told and "only after 600 s" in told

    code, told = slshudi("recover", "ad_events", "--transaction", "nobody")
    assert code == 1 and f"these do: {opened.id}" in told
    code, told = slshudi("recover", "ad_events", "--transaction", opened.id)
    assert code == 0 and "ROLL_BACK_AND_ABORT" in told and "REQUESTED" in told
    assert pipeline.work.ledger.get(opened.id).state is State.ABORTED


def test_a_lease_whose_holder_is_unknown_is_broken_for_a_reason_and_with_evidence(
    pipeline: Scenario, slshudi: Callable[..., tuple[int, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = pipeline.prepare(pipeline.by("run-2"))
    with pipeline.work.ledger.lease("ad_events", "tail/run-2", seconds=195):
        code, told = slshudi("recover", "ad_events", "--break-lease", "nobody answers")
        assert code == 1 and "tail/run-2 has the lease, and its process lives on this machine" in told
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(lease_module, "this_process", lambda: "another-boot/pid:[1]/7/7")
        lost = pipeline.work.ledger.lease("ad_events", "tail/run-2", seconds=195)
        held = lost.__enter__()
    code, told = slshudi("recover", "ad_events", "--transaction", prepared.id, "--break-lease", "its machine burnt")
    assert code == 0 and "RECOMMIT" in told
    for shown in ("tail/run-2", "another-boot/pid:[1]/7/7", f"{held.expires:%Y-%m-%d %H:%M:%S}", "nothing: it is not"):
        assert shown in told
    (event,) = (event for event in pipeline.work.ledger.events(prepared.id) if event.what == "lease broken")
    assert "its machine burnt" in event.detail and "another-boot" in event.detail
    with pytest.raises(LeaseHeld):
        held.renew()


def test_a_second_command_takes_nothing_of_the_first_for_its_own(
    pipeline: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two containers, whose processes have the same number."""
    monkeypatch.setattr(os, "getpid", lambda: 7)
    monkeypatch.setattr(hooks_work, "work_of", lambda name, run: replace(pipeline.work, run=run))
    first, second = common.work_of("ad_events"), common.work_of("ad_events")
    planned = plan.tail(first)
    assert planned is not None
    assert dangling_transactions(second, lambda run: None) == {}
    assert dangling_transactions(first, lambda run: None).keys() == {planned.id}


def test_a_batch_is_given_up_with_a_reason_after_what_is_known_of_it_was_shown(
    pipeline: Scenario, slshudi: Callable[..., tuple[int, Any]]
) -> None:
    planned = plan.tail(pipeline.by("run-2"))
    assert planned is not None
    code, told = slshudi("abandon", "ad_events", planned.id)
    assert code == 0 and "PLANNED" in told and "NOTHING" in told and "nothing was changed" in told
    assert pipeline.work.ledger.get(planned.id).state is State.PLANNED
    code, told = slshudi("abandon", "ad_events", planned.id, "--reason", "no more room")
    assert code == 0 and "its ranges are free" in told
    assert "no more room" in str(pipeline.work.ledger.get(planned.id).error)
    code, told = slshudi("abandon", "ad_events", planned.id, "--reason", "again")
    assert code == 1 and "its live ones: none" in told


def test_a_late_instant_of_a_decided_transaction_is_told_with_both_sides(
    pipeline: Scenario, slshudi: Callable[..., tuple[int, Any]]
) -> None:
    planned = plan.tail(pipeline.by("run-2"))
    assert planned is not None
    assert slshudi("recover", "ad_events", "--transaction", planned.id)[0] == 0
    late = pipeline.work.order(transaction=planned.id, token=planned.token)
    pipeline.work.launcher.run(Verb.OPEN, late, {})
    code, told = slshudi("recover", "ad_events", "--json")
    (decided,) = told["decided"]
    assert (code, decided["transaction"], decided["decision"]) == (0, planned.id, "ROLL_BACK")
    assert (decided["ledger"], decided["timeline"]) == ("ABORTED", "REQUESTED")
    assert slshudi("ledger", "show", planned.id)[1].count("ROLL_BACK") == 1


def test_what_a_person_has_to_look_at_has_an_exit_code_of_its_own(
    pipeline: Scenario, slshudi: Callable[..., tuple[int, Any]]
) -> None:
    forget_all_instants(pipeline)
    code, told = slshudi("recover", "ad_events")
    assert code == 3 and "slshudi ledger rebuild ad_events" in told
    shutil.rmtree(pipeline.work.storage.full(""))
    code, told = slshudi("recover", "ad_events")
    assert code == 1 and "slshudi ledger rebuild ad_events --table-is-gone" in told
    assert slshudi("ledger", "rebuild", "ad_events")[0] == 1
    code, told = slshudi("ledger", "rebuild", "ad_events", "--table-is-gone", "--json")
    assert (code, told["committed"]) == (0, 0)


def test_a_proof_is_a_table_for_people_json_for_programs_and_a_task_for_airflow(
    pipeline: Scenario, slshudi: Callable[..., tuple[int, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SlsHudiVerifyOperator, "work", lambda self, context: pipeline.work)
    task = SlsHudiVerifyOperator(task_id="verify", pipeline="ad_events")
    proven = task.execute(cast(Context, {"params": {"source": True}, "dag_run": None}))
    assert (proven["rows"], proven["compared"], proven["lacking"], proven["ranges"]) == (LOGS, 5, 0, 1)
    code, told = slshudi("verify", "ad_events")
    assert code == 0 and "every log once" in told and "Ranges that are not" not in told

    def damage(keys: list[str]) -> list[str]:
        return [f"{keys[0]} damaged", f"{keys[1]} 9-1-1", *keys[3:], keys[3]]

    batch = damaged_batch(pipeline, damage)
    code, told = slshudi("verify", "ad_events", "--source")
    assert code == 1 and "NOT every log once" in told and batch.id in told
    assert "1 rows have a key that names no shard, cursor and index, like 'damaged'" in told
    assert "shard 9: 1 rows outside of all that was recorded, like 9-1-1" in told
    code, told = slshudi("verify", "ad_events", "--source", "--json")
    assert (code, told["ok"], told["pipeline"], told["unreadable"]) == (1, False, "ad_events", 1)
    healthy, wrong = told["ranges"]
    assert (healthy["missing"], wrong["transaction"], wrong["missing"], wrong["doubled"]) == (0, batch.id, 3, 1)
    assert [(item["shard"], item["foreign"]) for item in told["shards"]] == [(0, 0), (9, 1)]
    with pytest.raises(
        AirflowFailException, match=rf"3 missing, 1 doubled, 1 foreign, 1 unreadable rows: .*{batch.id}"
    ):
        task.execute(cast(Context, {"params": {}, "dag_run": None}))


def test_a_damaged_metadata_table_is_looked_at_and_made_anew(
    pipeline: Scenario, slshudi: Callable[..., tuple[int, Any]]
) -> None:
    code, told = slshudi("table", "rebuild-metadata", "ad_events", "--check")
    assert code == 0 and "before" in told
    pipeline.work.storage.delete_folder(METADATA_FOLDER)
    code, told = slshudi("table", "rebuild-metadata", "ad_events", "--check", "--json")
    assert code == 1 and not told["before"]["ok"] and told["before"]["unreadable"] and "after" not in told
    code, told = slshudi("table", "rebuild-metadata", "ad_events", "--json")
    assert code == 0 and told["after"]["ok"] and told["after"]["files"] > 0
    assert pipeline.batch("run-2").rows == LOGS


def test_a_table_with_nothing_to_mend(pipeline: Scenario, slshudi: Callable[..., tuple[int, Any]]) -> None:
    for command in ("check", "mend"):
        code, told = slshudi("table", command, "ad_events")
        assert code == 0 and "ad_events: to be mended" in told and "folders said to be escaped" in told
        code, told = slshudi("table", command, "ad_events", "--json")
        assert (code, told["ok"], told["hiding"]) == (0, True, [])
        assert told["looked"] > 0


def test_an_erasure_is_accepted_by_hand(
    pipeline: Scenario, spark: SparkSession, slshudi: Callable[..., tuple[int, Any]]
) -> None:
    run_sql(spark, pipeline, "delete from {t} where event_id in ('event-3', 'event-4')")
    code, told = slshudi("verify", "ad_events", "--json")
    assert (code, told["totals"]["missing"]) == (1, 2)
    code, told = slshudi("table", "accept-erased", "ad_events", "--reason", "a request", "--json")
    assert code == 0 and told["done"].endswith("(DELETE_PREPPED) took 2 rows out of the table")
    code, told = slshudi("verify", "ad_events")
    assert code == 0 and "erased" in told and "every log once" in told
    (deed,) = pipeline.work.ledger.audit_entries("ad_events", 10)
    assert (deed.act, deed.reason, deed.who) == ("accept-erased", "a request", this_user())
    code, told = slshudi("table", "accept-erased", "ad_events", "--reason", " ")
    assert code != 0 and "say why" in told
