"""`python -m tests.canary.typed`: a secret in each field of each connection, and a character behind it that is hidden.

Each is refused by its field, before anything is sent; what was said of it is printed, and the canary searches that.
It reads the secret from its standard input, and needs Airflow's variables and a pipeline's name.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from airflow_provider_slshudi import cli
from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.hooks import ledger, sls, spark
from airflow_provider_slshudi.hooks.connections import ConnectionMissing

CHARACTERS = ("\n", "\u200b")
FIELDS = ("host", "port", "schema", "login", "password")
EXTRAS = {
    "sls": sls.EXTRAS,
    "slshudi_ledger": ("dialect", *ledger.TLS["postgresql"], *ledger.TLS["mysql"]),
    "spark": spark.EXTRAS,
}
UNKNOWN = "a_name_that_means_nothing"
CONN_ID = "typed"


@dataclass(frozen=True)
class Case:
    """A connection that would do but for one field."""

    conn_type: str
    field: str
    character: str
    fields: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.conn_type}, {self.field}, U+{ord(self.character):04X}"


def cases(secret: str, port: int) -> Iterator[Case]:
    """All of them; what they would reach is at `port`."""
    good: dict[str, dict[str, Any]] = {
        "sls": {"host": f"http://127.0.0.1:{port}", "login": "id", "password": "key", "extra": {"auth_version": "v1"}},
        "slshudi_ledger": {"host": "127.0.0.1", "port": port, "schema": "ledger", "extra": {"dialect": "postgresql"}},
        "spark": {"host": "spark://127.0.0.1", "port": port, "extra": {}},
    }
    for conn_type, known in EXTRAS.items():
        for character in CHARACTERS:
            typed, base = secret + character, good[conn_type]
            for field in FIELDS:
                yield Case(conn_type, field, character, {**base, field: typed})
            for extra in (*known, UNKNOWN):
                dialect = {"dialect": "mysql"} if extra.startswith("ssl_") else {}
                told = {**base["extra"], **dialect, extra: typed}
                yield Case(conn_type, f"extra {extra}", character, {**base, "extra": told})
            yield Case(conn_type, "extra", character, {**base, "extra": f"{{'password': '{typed}'}}"})


def users(pipeline: str) -> dict[str, list[Callable[[], object]]]:
    """What uses a connection of each type: hooks, test buttons, drivers and commands."""

    def order() -> JobOrder:
        raise AssertionError("a driver was about to be started")

    def drive() -> object:
        return spark.SparkLauncher(CONN_ID).run(Verb.APPEND, order, {})  # type: ignore[arg-type]

    def commands(*lines: str) -> list[Callable[[], object]]:
        return [lambda line=line: cli.main([*line.split(), pipeline]) for line in lines]  # type: ignore[misc]

    service, database = sls.SlsHook(CONN_ID), ledger.LedgerHook(CONN_ID)
    return {
        "sls": [service.connection, service.test_connection],
        "slshudi_ledger": [database.ledger, database.test_connection, *commands("status", "plan")],
        "spark": [spark.SparkLauncher(CONN_ID).master, drive],
    }


def main() -> int:
    """Prints what was said of each; 1 where a case was not refused, or something was sent."""
    secret, pipeline = sys.stdin.readline().strip(), sys.argv[1]
    os.environ["AIRFLOW__SLSHUDI__LEDGER_CONN_ID"] = CONN_ID
    os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
    tried, wrong = 0, list[str]()
    with socket.create_server(("127.0.0.1", 0)) as peer:
        peer.setblocking(False)
        for case in cases(secret, peer.getsockname()[1]):
            os.environ[f"AIRFLOW_CONN_{CONN_ID.upper()}"] = json.dumps({"conn_type": case.conn_type, **case.fields})
            tried += 1
            for use in users(pipeline)[case.conn_type]:
                if not _refused(case, use):
                    wrong.append(f"{case}: was not refused")
            try:
                peer.accept()[0].close()
            except BlockingIOError:
                continue
            wrong.append(f"{case}: something was sent")
    print(*wrong, f"typed: {tried} fields, {len(wrong)} wrong", sep="\n")
    return 1 if wrong else 0


def _refused(case: Case, use: Callable[[], object]) -> bool:
    """Whether a use is refused, as an error, a failed test or an exit code; prints what it says."""
    print(f"== {case}", flush=True)
    try:
        answer = use()
    except (ConfigError, ConnectionMissing) as error:
        traceback.print_exc()
        print(vars(error))
        # Airflow itself reads no port that is no number.
        return isinstance(error, ConnectionMissing) == (case.field == "port") and _names(case, str(error))
    print(answer)
    return answer == 1 or (isinstance(answer, tuple) and answer[0] is False and _names(case, answer[1]))


def _names(case: Case, said: str) -> bool:
    return case.field == "port" or case.field in said


if __name__ == "__main__":
    sys.exit(main())
