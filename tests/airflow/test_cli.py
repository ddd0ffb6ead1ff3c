"""The command `slshudi`."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_provider_slshudi import __version__, cli, settings
from airflow_provider_slshudi.cli.common import print_table
from airflow_provider_slshudi.hooks.ledger import LedgerHook
from airflow_provider_slshudi.ledger.records import Kind
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.planning.ranges import Range
from tests.local.sdk import PROJECT, by_ip, make_logstore, put
from tests.machine import connection, write_pipeline
from tests.seen import committed, registered


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the command sets for its process is undone after the test."""
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
    monkeypatch.setenv("AIRFLOW__LOGGING__LOGGING_LEVEL", "WARNING")


def test_plan_shows_what_the_next_batch_would_read_and_reserves_nothing(
    sls: LocalSls,
    pipelines: Path,
    ledger_connection: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given, client = sls.connection(), by_ip(sls.connection())
    logstore = make_logstore(client, "command-line")
    fields = {"host": given.endpoint, "login": given.access_key_id, "password": given.access_key_secret.reveal()}
    monkeypatch.setenv("AIRFLOW_CONN_SLS_DEFAULT", connection("sls", **fields))
    file = pipelines / "ad_events.yaml"
    write_pipeline(file, tmp_path / "lake", source={"project": PROJECT, "logstore": logstore})
    for _ in range(7):
        put(client, logstore, [b"x"])
    assert cli.main(["plan", str(file), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["pipeline"] == "ad_events"
    assert sum(item["end"] - item["begin"] for item in shown["ranges"]) == 7
    assert cli.main(["plan", "ad_events"]) == 0
    assert "log groups" in capsys.readouterr().out
    assert LedgerHook().ledger().pipelines() == []


def test_commands_say_that_a_table_s_path_was_edited_before_they_speak_of_a_table_that_is_gone(
    pipelines: Path, ledger_connection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pipeline(pipelines / "ad_events.yaml", tmp_path / "edited")
    source = settings.pipeline("ad_events").source.identity
    ledger = LedgerHook().ledger()
    ledger.register("ad_events", source, f"file://{tmp_path}/lake")
    ledger.opened(ledger.begin("ad_events", Kind.TAIL, [Range(0, 0, 1)], "tail", "run-1").id, 1, "instant")
    assert cli.main(["plan", "ad_events"]) == 1
    plan_says = capsys.readouterr().err
    assert cli.main(["doctor", "ad_events"]) == 1
    for said in (plan_says, capsys.readouterr().out):
        assert "put `table.path` back" in said and f"{tmp_path}/lake" in said and f"{tmp_path}/edited" in said
        assert "table-is-gone" not in said


def test_ledger_show_lists_transactions_and_shows_one_in_full(
    ledger_connection: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = LedgerHook().ledger()
    ledger.register("clicks", "sls://shop/clicks", "file:///lake/clicks")
    begun = ledger.begin("clicks", Kind.TAIL, [Range(0, 10, 25)], "tail", "run-1")
    assert cli.main(["ledger", "show", "--pipeline", "clicks", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["id"], listed["state"], listed["run_id"]) == (begun.id, "PLANNED", "run-1")
    assert cli.main(["ledger", "show", begun.id, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["ranges"] == [
        {"shard": 0, "begin": 10, "end": 25, "gap": False, "rows": None, "bytes": None, "filtered": None}
    ]
    assert cli.main(["ledger", "show", begun.id]) == 0
    assert begun.id in capsys.readouterr().out


def test_a_limit_holds_for_all_pipelines_together(ledger_connection: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = LedgerHook().ledger()
    begun = []
    for name in ("clicks", "views", "sales"):
        ledger.register(name, f"sls://shop/{name}", f"file:///lake/{name}")
        begun.append(ledger.begin(name, Kind.TAIL, [Range(0, 10, 25)], "tail", "run-1").id)
    assert cli.main(["ledger", "show", "--limit", "2", "--json"]) == 0
    assert [item["id"] for item in json.loads(capsys.readouterr().out)] == sorted(begun, reverse=True)[:2]
    with pytest.raises(SystemExit, match="2"):
        cli.main(["ledger", "show", "--limit", "0"])


def test_a_pipe_gets_columns_and_a_narrow_terminal_whole_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    id_, columns = "20261130T075120677000-0a1b2c", ("transaction", "pipeline", "state", "rows")
    rows = [(id_, "a_pipeline_with_a_long_name", "COMMITTED", 1_000_000)]
    pipe, narrow = io.StringIO(), Terminal()
    print_table(pipe, "Transactions", columns, rows)
    assert pipe.getvalue().isascii() and pipe.getvalue().splitlines()[2].split() == [str(cell) for cell in rows[0]]
    monkeypatch.setenv("COLUMNS", "60")
    print_table(narrow, "Transactions", columns, rows)
    assert id_ in narrow.getvalue() and "│" not in narrow.getvalue()
    monkeypatch.setenv("COLUMNS", "120")
    print_table(wide := Terminal(), "Transactions", columns, rows)
    assert id_ in wide.getvalue() and "│" in wide.getvalue()


def test_a_cell_is_printed_as_it_is() -> None:
    cell = "manual__2026-01-01T00:00:00:b:x-:smile:-[red]" + "x" * 20_000
    print_table(pipe := io.StringIO(), ":smile:", ("run",), [(cell,)])
    assert pipe.getvalue().splitlines()[0] == ":smile:" and pipe.getvalue().splitlines()[2].rstrip() == cell


def test_the_version_names_what_a_report_needs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    told = capsys.readouterr().out
    assert told.startswith(f"slshudi {__version__}\n")
    assert all(f"{name} " in told for name in ("apache-airflow", "pyspark", "hudi", "python")) and "decoder: " in told


def test_an_error_is_one_line_and_a_wrong_call_is_a_usage(
    pipelines: Path, ledger_connection: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["plan", "nothing"]) == 1
    told = capsys.readouterr()
    assert told.out == "" and told.err.startswith("slshudi: no pipeline 'nothing'") and told.err.count("\n") == 1
    assert cli.main(["ledger", "show", "none-such"]) == 1
    assert "none-such" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        cli.main(["plan"])


@pytest.mark.parametrize(
    ("line", "completed"), [("slshudi pl", ["plan"]), ("slshudi plan ad", ["ad_events"]), ("slshudi plan none", [""])]
)
def test_a_shell_completes_commands_and_pipelines(
    pipelines: Path, tmp_path: Path, line: str, completed: list[str]
) -> None:
    told = tmp_path / "told"
    asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_STDOUT_FILENAME": str(told), "_ARGCOMPLETE_IFS": "\n"}
    asked |= {"COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9"}
    command = [sys.executable, "-m", "airflow_provider_slshudi.cli"]
    subprocess.run(command, env={**os.environ, **asked}, timeout=120, check=False, capture_output=True)
    assert [word.strip() for word in told.read_text().split("\n")] == completed


def test_the_local_server_runs_in_the_foreground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLSHUDI_LOCAL_SECRET", "local-secret")
    command = [sys.executable, "-m", "airflow_provider_slshudi.cli", "local-sls"]
    options = ["--directory", str(tmp_path), "--port", "0", "--access-key-id", "me"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None and server.stdout.readline().startswith("listening on 127.0.0.1:")
        server.terminate()
        assert server.wait(15) in (0, -15)


def test_ledger_prune_makes_old_batches_small_and_says_how_many(
    ledger_connection: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider_slshudi.ledger.prune.NEWEST", 1)
    monkeypatch.setattr("airflow_provider_slshudi.ledger.prune._TRANSACTIONS", 1)
    monkeypatch.setattr("airflow_provider_slshudi.cli.ledger._TELL_SECONDS", 0)
    ledger = LedgerHook().ledger()
    for name in ("clicks", "views"):
        registered(ledger, name)
        for number in range(3):
            committed(ledger, name, [Range(0, 10 * number, 10 * number + 10)], f"run-{number}")
    today = ledger.now()
    monkeypatch.setattr(type(ledger), "now", lambda _: today + timedelta(days=30))
    assert cli.main(["ledger", "prune", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"pipeline": name, "batches": 0, "events": 0, "ranges": 0} for name in ("clicks", "views")
    ]
    assert cli.main(["ledger", "prune", "--pipeline", "clicks", "--days", "29"]) == 0
    told = capsys.readouterr().out
    assert "clicks: 1 batches so far" in told and "clicks: 2 batches so far" in told and "views" not in told
    assert cli.main(["ledger", "prune", "--days", "29", "--json"]) == 0
    (clicks, views) = json.loads(capsys.readouterr().out)
    assert (clicks["batches"], views["batches"], views["ranges"]) == (0, 2, 2)
    assert ledger.audit("views").ok and len(ledger.recorded("views")) == 3
    for days in ("6", "-1", "x", "1e9", "1000000000"):
        with pytest.raises(SystemExit):
            cli.main(["ledger", "prune", "--days", days])
        assert "is no number of days from 7 to 36500" in capsys.readouterr().err
    assert cli.main(["ledger", "prune", "--pipeline", ""]) == 1
    assert "the ledger knows no pipeline" in capsys.readouterr().err
