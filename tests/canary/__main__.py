"""`python -m tests.canary`: a secret in every connection, everything run, then all searched that somebody can read.

Batches, a proof, table services and commands run well, are refused, killed and made to dump what they know, and
each field of each connection is typed with a character behind it that is not seen (`typed`); then logs,
databases, process lists, event logs, pages, XComs, rendered templates, table files and temporary folders are searched.
In the end a leak of each kind is planted, and has to be found.
"""

from __future__ import annotations

import base64
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import requests
from sqlalchemy import create_engine, text

from airflow_provider_slshudi.cli.demo.airflow_process import AirflowRefused
from airflow_provider_slshudi.storage.files import Storage
from tests.canary.processes import Watch
from tests.canary.search import Search
from tests.canary.stage import (
    APPENDS,
    BUCKET,
    OF_PASSWORD,
    OF_SPARK,
    OF_TOKEN,
    PIPELINES,
    REFUSED,
    TYPED,
    UPSERTS,
    Stage,
    stage,
)
from tests.waiting import until

LIMIT = 500


def main() -> int:
    """Prints what was found; 1 where a secret is, or a planted one is not."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="slshudi-canary-") as name:
        home = Path(name).resolve()
        with stage(home) as made:
            with Watch() as watch:
                run(made)
            found = searched(made, watch)
            for place in sorted(set(found.found)):
                print(f"LEAK: {place}", flush=True)
            planted = plant(made)
    missed = [kind for kind, is_found in planted.items() if not is_found]
    print(*(f"the planted leak in {kind} was not found" for kind in missed), sep="\n")
    print(f"{time.monotonic() - began:.0f} s")
    leaks = len(set(found.found))
    print(
        f"canary: {len(made.secrets)} secrets, {found.places} places, {found.bytes_ / 1e6:.0f} MB: {leaks} leaks; "
        f"{len(planted) - len(missed)} of {len(planted)} planted ones found"
    )
    return 1 if leaks or missed else 0


def run(made: Stage) -> None:
    """Everything, well and badly."""
    for name in (APPENDS, UPSERTS):
        made.put(name, range(100))
        _told(f"{name}: a batch", made.run(f"{name}_tail"), "success")
    _crashed(made)
    _told("the batch after it", made.run(f"{APPENDS}_tail"), "success")
    for name in (APPENDS, UPSERTS):
        _told(f"{name}: table services", made.run(f"{name}_maintenance"), "success")
    made.put(REFUSED, range(10))
    _told("a key that is refused", made.run(f"{REFUSED}_tail"), "failed")
    _typed(made)
    for arguments in (
        ("status", "--json"),
        ("doctor",),
        ("verify", APPENDS, "--source"),
        ("plan", REFUSED),
        ("ledger", "show"),
    ):
        code, what = made.command(*arguments), f"slshudi {' '.join(arguments)}"
        print(f"{what}: exit code {code}: {made.said[what].decode().strip().splitlines()[-1:]}", flush=True)
    # Last, since nothing goes on behind it: tasks fail, with Spark's traces.
    made.put(APPENDS, range(200, 210), price="no price")
    _told("a log that does not fit", made.run(f"{APPENDS}_tail"), "failed")


def _typed(made: Stage) -> None:
    """A secret with a character behind it that is not seen: in connections of runs, then in each field of each type."""
    for name in (OF_PASSWORD, OF_TOKEN, OF_SPARK):
        made.put(name, range(10))
        _told(f"a secret with such a character, {name}", made.run(f"{name}_tail"), "failed")
    secret = made.secrets[TYPED]
    made.type_ledger(f"{secret}\n")
    _told("the ledger's password with one", made.run(f"{APPENDS}_tail"), "failed")
    if not made.command("status"):
        raise RuntimeError("slshudi status did not fail without a ledger")
    made.said["page without a ledger"] = _fetched(made.airflow.url, "slshudi/", made.airflow)
    made.type_ledger(made.secrets["ledger's password"])
    code = made.module("tests.canary.typed", APPENDS, name="each field", given=f"{secret}\n")
    print(f"each field of each connection: {made.said['each field'].decode().splitlines()[-1]}", flush=True)
    if code:
        raise RuntimeError(made.said["each field"].decode())


def _crashed(made: Stage) -> None:
    """A driver's JVM crashes in its append, and writes what it knows of its environment."""
    made.put(APPENDS, range(100, 200))
    airflow, dag = made.airflow, f"{APPENDS}_tail"
    started = airflow.trigger(dag)
    driver = until("an append's driver runs", lambda: made.driver("append", APPENDS), 300)
    assert driver is not None
    time.sleep(0.5)
    driver.send_signal(signal.SIGSEGV)
    _told("a driver that crashes", airflow.wait_for_run(dag, started, 600), "failed")


def _told(what: str, state: str, wanted: str) -> None:
    print(f"{what}: {state}", flush=True)
    if state != wanted:
        raise RuntimeError(f"{what} ended {state} and not {wanted}")


def searched(made: Stage, watch: Watch) -> Search:
    """Everything that was left, or shown."""
    search = Search(made.secrets)
    # Spark's operator keeps the cluster's secret there.
    search.files(made.home, but=[made.cluster.settings / "spark-defaults.conf"])
    for line in watch.lines:
        search.look(f"the process list: {line[:80]}", line.encode())
    # Workers of a cluster have these two from their operator.
    theirs = "store's key", "Spark's secret"
    inside = Search({name: secret for name, secret in made.secrets.items() if name not in theirs})
    for line, environment in watch.environments.items():
        inside.look(f"the environment of {line[:80]}", environment.encode())
    search.places, search.found = search.places + inside.places, search.found + inside.found
    assert watch.environments, "no executor was seen"
    for name, answer in pages(made):
        search.look(name, answer)
    for name, said in made.said.items():
        search.look(name, said)
    search.rows("the ledger", made.ledger)
    airflow = create_engine(f"sqlite:///{made.home}/airflow/airflow.db")
    search.rows("Airflow's database", airflow)
    airflow.dispose()
    for name in PIPELINES:
        table = Storage(f"s3a://{BUCKET}/{name}")
        for path in table.files(""):
            search.look(f"{table.uri}/{path}", (table.read(path) or b"") + path.encode())
    return search


def pages(made: Stage) -> Iterator[tuple[str, bytes]]:
    """The package's pages, Airflow's API for all that a run leaves, and Spark's pages."""
    airflow = made.airflow
    for name in PIPELINES:
        ids = [item["transaction_id"] for item in _transactions(made, name)]
        for path in ("", f"pipelines/{name}", "metrics", *(f"transactions/{id_}" for id_ in ids)):
            yield f"page /slshudi/{path}", _fetched(airflow.url, f"slshudi/{path}", airflow)
        for dag in (f"{name}_tail", f"{name}_maintenance"):
            yield f"source of {dag}", _api(made, f"dagSources/{dag}")
            for run_ in airflow.runs(dag):
                below = f"dags/{dag}/dagRuns/{run_['dag_run_id']}"
                yield below, _api(made, below)
                for task in airflow.get(f"{below}/taskInstances", limit=LIMIT)["task_instances"]:
                    of_task = f"{below}/taskInstances/{task['task_id']}"
                    for what in ("", "/xcomEntries", "/logs/1"):
                        yield f"{of_task}{what}", _api(made, f"{of_task}{what}")
    for path in ("connections", "variables", "config", "eventLogs", "importErrors", "plugins", "assets/events"):
        yield path, _api(made, path)
    yield "the master's page", made.cluster.page().encode()
    yield "the master's page for people", requests.get(made.cluster.web, timeout=30).content


def _transactions(made: Stage, name: str) -> list[dict[str, str]]:
    with made.ledger.connect() as connection:
        found = connection.execute(text("select id from slshudi_transaction where pipeline = :name"), {"name": name})
        return [{"transaction_id": row[0]} for row in found]


def _api(made: Stage, path: str) -> bytes:
    try:
        return str(made.airflow.get(path)).encode()
    except AirflowRefused as error:
        return str(error).encode()


def _fetched(url: str, path: str, airflow: object) -> bytes:
    session: requests.Session = airflow._session  # type: ignore[attr-defined]
    return session.get(f"{url}/{path}", timeout=30).content


def plant(made: Stage) -> dict[str, bool]:
    """Puts a secret where each kind of search has to find it; whether it did."""
    secret = made.secrets["log service's key"]
    found = {}

    def finds(kind: str, search: Search) -> None:
        found[kind] = bool(search.found)

    log = made.home / "airflow" / "logs" / "planted.log"
    log.write_text(f"signed with {secret}.")
    hidden = made.home / "tmp" / "planted.bin"
    hidden.write_bytes(b"\x00" + base64.b64encode(b"a" + secret.encode() + b"b"))
    for kind, path in (("a log", log), ("a temporary file, in base64", hidden)):
        search = Search(made.secrets)
        search.look(kind, path.read_bytes())
        finds(kind, search)
        path.unlink()
    table = Storage(f"s3a://{BUCKET}/{APPENDS}")
    table.write("planted", secret.encode().hex().encode())
    search = Search(made.secrets)
    search.look("a table's file", table.read("planted") or b"")
    finds("a table's file, in hexadecimal", search)
    with made.ledger.begin() as connection:
        connection.execute(text("create table planted (content text)"))
        connection.execute(text("insert into planted values (:content)"), {"content": secret})
    search = Search(made.secrets)
    search.rows("the ledger", made.ledger)
    finds("the ledger", search)
    asleep = [sys.executable, "-c", "import time; time.sleep(600)", secret]
    with Watch() as watch, subprocess.Popen(asleep) as shown:
        until("the process list shows it", lambda: any(secret in line for line in watch.lines), 60)
        shown.kill()
    search = Search(made.secrets)
    for line in watch.lines:
        search.look("a command line", line.encode())
    finds("a command line", search)
    return found


if __name__ == "__main__":
    sys.exit(main())
