"""A user id that the system has no name for, and no HOME, as OpenShift gives to containers."""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_slshudi.exceptions import RuntimeMissing
from airflow_provider_slshudi.local.process import LocalSls
from airflow_provider_slshudi.spark import packages, resident
from tests.local.sdk import by_ip
from tests.pipelines import ad_events
from tests.scenarios import PROJECT
from tests.users import open_folder, run_as

NAMELESS = 54_321
BATCH = """
import os, sys
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.spark.launch import SubprocessLauncher
from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.transaction.context import Run, Work
from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.sls.service import LogService
from tests.local.sdk import by_ip
from tests.scenarios import Scenario

connection = SlsConnection.from_env(os.environ)
pipeline = Pipeline.model_validate_json(sys.stdin.read())
engine = open_engine(f"sqlite:///{os.environ['TMPDIR']}/ledger.db")
migrate(engine)
launcher = SubprocessLauncher(resident="RESIDENT" in os.environ)
connect = lambda: LogService(connection, pipeline.source.project, pipeline.source.logstore)
scenario = Scenario(Work(pipeline, Ledger(engine), launcher, connect, Run("tail", "run-0")), by_ip(connection))
scenario.put(10)
committed = scenario.batch("run-1")
print(committed.state.value, committed.rows)
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user can reach and write to, with the jars in it."""
    jars = packages.jars()[0].parent
    with open_folder() as made:
        shutil.copytree(jars, made / "cache" / "packages" / jars.name)
        for path in made.rglob("*"):
            path.chmod(0o777)
        yield made


@pytest.mark.long
@pytest.mark.parametrize("resident_driver", [True, False], ids=["resident", "submitted"])
def test_a_batch_by_a_user_without_name_and_home(place: Path, tmp_path: Path, resident_driver: bool) -> None:
    """Where tests do not run as root they have but their own user, who keeps the name and loses HOME."""
    with LocalSls(tmp_path) as server:
        client, connection = by_ip(server.connection()), server.connection()
        client.create_project(PROJECT, "tests")
        client.create_logstore(PROJECT, "events", ttl=7, shard_count=1)
        pipeline = ad_events(place / "table", source={"project": PROJECT, "logstore": "events"})
        kept = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME")}
        theirs = {"TMPDIR": str(place), "SLSHUDI_CACHE": str(place / "cache"), resident.IDLE: "5"}
        theirs |= {"RESIDENT": ""} if resident_driver else {}
        env = {**kept, **theirs, **connection.to_env()}
        told = run_as(NAMELESS, BATCH, given=pipeline.model_dump_json(), env=env)
    assert told.splitlines()[-1] == "COMMITTED 10"
    [file, *_] = (place / "table").rglob("*.parquet")
    assert os.geteuid() != 0 or file.stat().st_uid == NAMELESS


def test_without_a_place_for_jars_one_sentence_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    for name in ("HOME", "XDG_CACHE_HOME", "SLSHUDI_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(RuntimeMissing, match=r"HOME is not set.*SLSHUDI_CACHE"):
        packages.environment()
