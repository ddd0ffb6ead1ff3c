"""An Airflow that serves pages and runs nothing, for users who may read some of its DAGs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

import requests

from airflow_provider_slshudi.cli.demo.airflow_process import HOST, LocalAirflow
from tests.machine import ROOT
from tests.points import SITE
from tests.waiting import until

USERS = {"admin": "admin", "reader": "viewer", "onlooker": "viewer", "operator": "user"}
"""Each user's role; the password is the name. `tests.airflow.pages.auth` says which DAGs they may read and trigger."""


class ServedAirflow(LocalAirflow):
    """An API server alone; its DAGs were parsed once."""

    def __init__(self, directory: Path, dags_folder: Path, environment: Mapping[str, str]) -> None:
        passwords = directory / "passwords.json"
        directory.mkdir(parents=True)
        passwords.write_text(json.dumps({name: name for name in USERS}), encoding="utf-8")
        ours = {
            "AIRFLOW__CORE__AUTH_MANAGER": "tests.airflow.pages.auth.PerDag",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{name}:{role}" for name, role in USERS.items()),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
            "PYTHONPATH": os.pathsep.join([str(SITE), str(ROOT)]),
        }
        super().__init__(directory, dags_folder, {**ours, **environment})

    def start(self) -> None:
        """Parses the DAGs, then serves."""
        self._make_database()
        parsed = self._run("dag-processor", ["dags", "reserialize"])
        assert parsed.wait() == 0, self._last_words("dag-processor")
        self._children["api-server"] = self._run("api-server", ["api-server"])
        until("the API server answers", self._answers, explain=lambda: self._last_words("api-server"))

    def login(self, name: str) -> requests.Session:
        """A session of a user, as a browser has it: with the cookie."""
        session = requests.Session()
        session.trust_env = False
        given = session.post(f"{self.url}/auth/token", json={"username": name, "password": name}, timeout=30)
        session.cookies.set("_token", given.json()["access_token"], domain=HOST)
        return session

    def _answers(self) -> bool:
        time.sleep(0.2)
        try:
            return requests.get(f"{self.url}/api/v2/version", timeout=5).ok
        except requests.RequestException:
            return False
