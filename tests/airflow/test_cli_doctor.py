"""`slshudi doctor`, and how long a person waits beside a task."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from airflow_provider_slshudi import cli
from airflow_provider_slshudi.exceptions import SourceUnavailable
from airflow_provider_slshudi.hooks.work import work_of
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.sls import faults
from airflow_provider_slshudi.transaction.context import Run
from tests.local.sdk import PROJECT, by_ip, make_logstore
from tests.machine import connection, write_pipeline
from tests.services import closed_port

SLS = "AIRFLOW_CONN_SLS_DEFAULT"

JAVA = re.compile(r"  (ok|warning) +Java ")
"""The first finding; the machine's Java may be an old one."""


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the command sets for its process is undone after the test."""
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
    monkeypatch.setenv("AIRFLOW__LOGGING__LOGGING_LEVEL", "WARNING")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", connection("spark", host="local[2]"))


@pytest.fixture
def well(
    sls: LocalSls, pipelines: Path, ledger_connection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A pipeline for which all is as it should be; gives its file."""
    given = sls.connection()
    logstore = make_logstore(by_ip(given), f"doctor-{tmp_path.name.replace('_', '-')}"[:60])
    fields = {"host": given.endpoint, "login": given.access_key_id, "password": given.access_key_secret.reveal()}
    monkeypatch.setenv(SLS, connection("sls", **fields))
    file = pipelines / "ad_events.yaml"
    write_pipeline(file, tmp_path / "lake", source={"project": PROJECT, "logstore": logstore})
    return file


@pytest.fixture
def nobody(well: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The same pipeline, with an endpoint that refuses connections."""
    with closed_port() as port:
        monkeypatch.setenv(SLS, connection("sls", host=f"127.0.0.1:{port}", login="id", password="key"))
        yield


def examined(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[tuple[str, str], dict[str, Any]]]:
    """The command's exit code, and its findings by what they are about and their check."""
    code = cli.main(["doctor", *arguments, "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert sum(shown["counts"].values()) == len(shown["findings"])
    return code, {(item["about"], item["check"]): item for item in shown["findings"]}


def test_all_that_a_pipeline_needs_is_looked_at_and_nothing_is_changed(
    well: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(tmp_path.rglob("*"))
    code, found = examined(capsys)
    assert code == 0
    wanted = {
        "this machine": {"Java", "Spark", "Python", "decoder", "cache", "Hudi", "archive", "locale"},
        "ledger slshudi_ledger": {"connection", "tables", "TLS", "lease", "database's clock"},
        "Airflow": {"executor", "parallelism", "heartbeat", "test button", "DAGs", "pipelines"},
        "pipeline ad_events": {"file", "connection", "shards", "cursors", "retention", "service's clock", "Spark"}
        | {"alerts", "consumers", "table", "table's files", "table's owner"},
    }
    assert {about: {check for of, check in found if of == about} for about in wanted} == wanted
    # Where tests run, jars and archive may not be there yet.
    assert found.pop(("pipeline ad_events", "alerts"))["verdict"] == "not known", "Airflow has no DAG of it"
    others = {item["verdict"] for (about, _), item in found.items() if about != "this machine"}
    plain = found[("pipeline ad_events", "connection")]
    assert plain["verdict"] == "warning" and "plain HTTP" in plain["seen"]
    assert others == {"ok", "warning"}
    assert sorted(tmp_path.rglob("*")) == before


def test_each_logstore_is_looked_at_by_its_own_connection(
    well: Path, sls: LocalSls, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = sls.connection()
    monkeypatch.setenv("AIRFLOW_CONN_SLS_EU", connection("sls", host=given.endpoint, login="other", password="key"))
    described = yaml.safe_load(well.read_text())
    first = f"{PROJECT}/{described['source']['logstore']}"
    described["source"]["also"] = [{"connection": "sls_eu", "project": PROJECT, "logstore": "events-eu"}]
    well.write_text(yaml.safe_dump(described))
    code, found = examined(capsys, "ad_events")
    assert code == 1
    assert found["pipeline ad_events", f"{first}: shards"]["verdict"] == "ok"
    there = f"{PROJECT}/events-eu"
    assert found["pipeline ad_events", f"{there}: shards"]["verdict"] == "wrong"
    assert there in found["pipeline ad_events", f"{there}: connection"]["seen"]


def test_what_is_wrong_gives_exit_code_1_and_what_depends_on_it_is_not_known(
    well: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SLSHUDI_LEDGER")
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    code, found = examined(capsys, "ad_events")
    assert code == 1
    assert found["ledger slshudi_ledger", "connection"]["verdict"] == "wrong"
    assert found["ledger slshudi_ledger", "lease"]["verdict"] == "not known"
    assert found["pipeline ad_events", "Spark"]["verdict"] == "wrong"
    assert "airflow connections add spark_default" in found["pipeline ad_events", "Spark"]["seen"]
    assert found["pipeline ad_events", "table"]["verdict"] == "not known"
    assert found["pipeline ad_events", "shards"]["verdict"] == "ok"


def test_a_pipeline_s_file_that_is_wrong_stands_in_nobody_s_way(well: Path, capsys: pytest.CaptureFixture[str]) -> None:
    well.with_name("broken.yaml").write_text("name: broken\n")
    code, found = examined(capsys)
    assert code == 1
    assert found["pipeline broken", "file"]["verdict"] == "wrong"
    assert ("pipeline broken", "shards") not in found
    assert found["pipeline ad_events", "shards"]["verdict"] == "ok"


def test_a_quarantine_is_looked_at_as_well(well: Path, capsys: pytest.CaptureFixture[str]) -> None:
    well.write_text(well.read_text().replace("misfits: nullify", "misfits: quarantine"))
    _, found = examined(capsys)
    assert found["pipeline ad_events", "quarantine's files"]["verdict"] == "ok"


def test_findings_are_lines_by_what_they_are_about(
    nobody: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started = time.monotonic()
    assert cli.main(["doctor", "ad_events"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "this machine" and JAVA.match(lines[1])
    assert [line for line in lines if not line.startswith(" ")][:4] == [
        "this machine",
        "ledger slshudi_ledger",
        "Airflow",
        "pipeline ad_events",
    ]
    assert any(line.startswith("  wrong      shards ") for line in lines)
    assert lines[-1].endswith("not known") and "wrong" in lines[-1]
    assert time.monotonic() - started < 30


def test_the_first_finding_is_shown_while_airflow_is_not_yet_imported(well: Path) -> None:
    code = (
        "import sys; from airflow_provider_slshudi import cli\n"
        "write = sys.stdout.write\n"
        "def noted(text):\n"
        "    print('airflow' in sys.modules, file=sys.stderr)\n"
        "    return write(text)\n"
        "sys.stdout.write = noted\n"
        "cli.main(['doctor', 'ad_events'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, env=os.environ)
    assert done.stdout.startswith("this machine\n") and JAVA.match(done.stdout.splitlines()[1]), done.stderr
    assert done.stderr.splitlines()[0] == "False"


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between tries, in seconds; nobody waits for them."""
    taken: list[float] = []
    monkeypatch.setattr(faults, "time", SimpleNamespace(monotonic=lambda: sum(taken), sleep=taken.append))
    return taken


def test_a_person_learns_at_once_that_nobody_answers(
    nobody: None, pauses: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    started = time.monotonic()
    assert cli.main(["plan", "ad_events"]) == 1
    assert time.monotonic() - started < 3
    told = capsys.readouterr().err
    assert "check the endpoint" in told and "try it again later" in told
    assert pauses == []


def test_a_task_goes_on_asking_for_a_minute(nobody: None, pauses: list[float]) -> None:
    with pytest.raises(SourceUnavailable, match="it is tried again"):
        work_of("ad_events", Run("tail", "run-1")).connect().shards()
    assert len(pauses) > 5 and 30 < sum(pauses) <= 60
