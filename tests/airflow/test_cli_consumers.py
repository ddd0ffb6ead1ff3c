"""Consumers and complete partitions on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_provider_slshudi.cli import main
from airflow_provider_slshudi.cli.consumer_places import with_action
from airflow_provider_slshudi.handover.names import FORGET_CONSUMER, MOVE_CONSUMER
from airflow_provider_slshudi.hooks.ledger import LedgerHook
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Feed, LedgerShard
from airflow_provider_slshudi.planning.periods import Periods
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.planning.watermark import Mark
from airflow_provider_slshudi.storage.owners import this_user
from tests.ledger.commits import commit

NAME, HOUR, WEEK = "ad_events", 3_600, 7 * 86_400
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def ledger(ledger_connection: Path) -> Ledger:
    """A ledger that knows a pipeline with three commits, and two consumers of it."""
    ledger = LedgerHook().ledger()
    ledger.register(NAME, "sls://ads/ad_events", "file:///lake/ad_events")
    for name, of in (("report", Feed.COMMITS), ("hourly", Feed.PARTITIONS)):
        ledger.subscribe(NAME, name, of, 0, WEEK)
    for _ in range(3):
        commit(ledger, pipeline=NAME)
    ledger.take(NAME, "report", 2, "airflow|report_dag/run-7")
    return ledger


def hours(ledger: Ledger) -> list[str]:
    """The last three hours; the first is complete, the second is open again, the third open."""
    now = int(ledger.now().timestamp())
    first = now - now % HOUR - 3 * HOUR
    values = [Periods("hour").at(first + n * HOUR).value for n in range(3)]
    ledger.save_shards(NAME, [LedgerShard(0, "readwrite", "", "", 0, 10)])
    ledger.save_look(NAME, first, {0: [Mark(0, first)]})
    ledger.save_look(NAME, first + 2 * HOUR + 60, {0: [Mark(10, first + 2 * HOUR + 60)]})
    commit(ledger, [Range(0, 0, 10)], {f"hour={value}": 5 for value in values}, pipeline=NAME)
    assert len(ledger.fold(NAME, Periods("hour"), "hour=", 0, None, []).completions) == 2
    ledger.save_look(NAME, first + 2 * HOUR + 120, {0: [Mark(12, first + 2 * HOUR + 120)]})
    commit(ledger, [Range(0, 10, 11)], {f"hour={values[1]}": 1}, pipeline=NAME)
    ledger.fold(NAME, Periods("hour"), "hour=", 0, None, [])
    return values


def test_consumers_say_what_each_has_confirmed_lacks_and_has_taken(ledger: Ledger, capsys: Capture) -> None:
    assert main(["consumers"]) == 0
    told = capsys.readouterr().out
    _, headings, hourly, report = (line.split() for line in told.splitlines())
    assert headings[:3] == ["pipeline", "consumer", "of"]
    assert hourly[:5] == [NAME, "hourly", "partitions", "0", "0"]
    assert report[:5] == [NAME, "report", "commits", "0", "3"]
    assert report[-5:] == ["to", "2", "report_dag/run-7", "7", "d"]
    assert not set("━┃│") & set(told)
    assert main(["consumers", NAME, "--json"]) == 0
    _, found = json.loads(capsys.readouterr().out)
    assert (found["name"], found["of"], found["confirmed"], found["behind"], found["taken"]) == (
        "report",
        "commits",
        0,
        3,
        2,
    )
    assert found["taker"] == "airflow|report_dag/run-7"
    assert "nonce" not in found


def test_a_pipeline_that_no_ledger_knows_has_neither_consumers_nor_partitions(ledger: Ledger, capsys: Capture) -> None:
    for command in (["consumers", "unheard-of"], ["partitions", "unheard-of"]):
        assert main(command) == 1
        assert "no ledger knows a pipeline 'unheard-of'" in capsys.readouterr().err


def test_a_consumer_is_moved_and_forgotten_for_a_reason_that_stays(
    pipelines: Path, ledger: Ledger, capsys: Capture
) -> None:
    with pytest.raises(SystemExit):
        main(["consumers", "move", NAME, "report", "--to", "1"])
    assert "--reason" in capsys.readouterr().err
    assert main(["consumers", "move", NAME, "report", "--to", "1", "--reason", "done by hand"]) == 0
    assert capsys.readouterr().out == "ad_events: consumer report goes on after 1\n"
    consumer = ledger.consumer(NAME, "report")
    assert consumer is not None
    assert (consumer.confirmed, consumer.taken) == (1, None)
    for to, place in (("begin", 0), ("end", 3)):
        assert main(["consumers", "move", NAME, "report", "--to", to, "--reason", "again", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["done"] == f"consumer report goes on after {place}"
    assert main(["consumers", "move", NAME, "report", "--to", "9", "--reason", "a slip"]) == 1
    assert "9 is no place: expected 0 to 3" in capsys.readouterr().err
    assert main(["consumers", "forget", NAME, "report", "--reason", "its team is gone"]) == 0
    assert ledger.consumer(NAME, "report") is None
    deeds = [(deed.act, deed.who, deed.reason, deed.result) for deed in ledger.audit_entries(NAME, 9)]
    assert deeds[0] == (FORGET_CONSUMER, this_user(), "its team is gone", "consumer report is forgotten")
    assert deeds[1][0] == MOVE_CONSUMER
    assert (deeds[1][3] or "").startswith("LedgerError: ")
    assert deeds[-1] == (MOVE_CONSUMER, this_user(), "done by hand", "consumer report goes on after 1")


def test_a_place_that_is_none_is_wrong_usage(ledger: Ledger, capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["consumers", "move", NAME, "report", "--to", "-1", "--reason", "a slip"])
    with pytest.raises(SystemExit):
        main(["consumers", "move", NAME, "report", "--to", "middle", "--reason", "a slip"])
    assert "expected a number, begin or end" in capsys.readouterr().err


def test_show_need_not_be_said() -> None:
    assert with_action(["consumers"]) == ["consumers", "show"]
    assert with_action(["consumers", NAME, "--json"]) == ["consumers", "show", NAME, "--json"]
    assert with_action(["consumers", "--json"]) == ["consumers", "show", "--json"]
    for said in (["consumers", "move", NAME], ["consumers", "show"], ["consumers", "--help"], ["status", NAME]):
        assert with_action(said) == said


def test_partitions_say_which_are_complete_and_until_when_all_is_committed(ledger: Ledger, capsys: Capture) -> None:
    complete, reopened, opened = hours(ledger)
    assert main(["partitions", NAME]) == 0
    _, _, *rows, watermark = capsys.readouterr().out.splitlines()
    assert [row.split()[:6] for row in rows] == [
        [complete, "complete", "5", "1", "1", "0"],
        [reopened, "reopened", "6", "2", "1", "0"],
        [opened, "open", "5", "1", "0", "0"],
    ]
    assert watermark.startswith("watermark: all is committed that the service received until ")
    assert main(["partitions", NAME, "--state", "open,reopened", "--since", "1d", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [item["value"] for item in told["partitions"]] == [reopened, opened]
    assert told["watermark"] < told["looked"]
    assert main(["partitions", NAME, "--since", "1m", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["partitions"] == []


def test_the_proof_of_a_partition_names_shards_and_cursors(ledger: Ledger, capsys: Capture) -> None:
    complete, _, opened = hours(ledger)
    assert main(["partitions", NAME, "--proof", complete]) == 0
    title, _, row = capsys.readouterr().out.splitlines()
    assert title.startswith(f"ad_events: partition {complete} was complete for the first time at ")
    assert "with 5 rows and the commits up to place 4" in title
    assert row.split() == ["0", "10"]
    assert main(["partitions", NAME, "--proof", complete, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["value"], told["number"], told["place"], told["proof"]) == (complete, 1, 4, {"0": 10})
    assert main(["partitions", NAME, "--proof", opened]) == 1
    assert f"partition '{opened}' never was complete" in capsys.readouterr().err


def test_of_a_pipeline_without_a_lateness_it_says_why_there_are_none(ledger: Ledger, capsys: Capture) -> None:
    assert main(["partitions", NAME]) == 0
    told = capsys.readouterr().out
    assert "Partitions of ad_events: none" in told
    assert "declares no `table.partition.lateness`" in told


@pytest.mark.parametrize("wrong", [["--since", "2 days"], ["--since", "0d"], ["--state", "done"]])
def test_options_that_nobody_can_read_are_wrong_usage(ledger: Ledger, capsys: Capture, wrong: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(["partitions", NAME, *wrong])
    assert "expected" in capsys.readouterr().err
