"""A real Prometheus over a real Airflow: `make monitoring`. Needs Debian's package `prometheus`.

Tests the alert rules, scrapes the pages' metrics with a user's token, and asks every query of the dashboard.
Ends with 1 if a rule is not well, a scrape fails, or a panel has no series.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import requests
import yaml

from airflow_provider_slshudi.cli.demo.airflow_process import HOST
from tests.browser.world import PIPELINES, World, exit_code, world
from tests.machine import ROOT
from tests.waiting import until

_FOLDER = ROOT / "monitoring"
_PORT = 19_090
EXPECTED = {"SlshudiNeedsPerson", "SlshudiExpires"}
"""Alerts of pipelines that have stopped, or whose unread logs expire soon; this world has both."""


def queries() -> dict[str, str]:
    """The queries of the dashboard, by panel and legend."""
    board = json.loads((_FOLDER / "dashboard.json").read_text(encoding="utf-8"))
    return {
        f"{panel['title']}: {target['legendFormat']}": target["expr"]
        for panel in board["panels"]
        for target in panel["targets"]
    }


def configured(found: World, folder: Path) -> Path:
    """The example's configuration with this world's address and token, scraped every second."""
    token = folder / "airflow-token"
    token.write_text(str(found.airflow.login("admin").cookies["_token"]), encoding="utf-8")
    config = yaml.safe_load((_FOLDER / "prometheus.yaml").read_text(encoding="utf-8"))
    config["global"] = {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(_FOLDER / "alerts.yaml")]
    (job,) = config["scrape_configs"]
    job["authorization"]["credentials_file"] = str(token)
    job["static_configs"] = [{"targets": [f"{HOST}:{found.airflow.port}"]}]
    file = folder / "prometheus.yaml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    return file


def ask(path: str, **query: str) -> Any:
    """Prometheus' own answer."""
    answer = requests.get(f"http://{HOST}:{_PORT}/api/v1/{path}", params=query, timeout=10)
    answer.raise_for_status()
    return answer.json()["data"]


def scraped() -> bool:
    """Whether all pipelines came in, and the rules looked at them."""
    try:
        seen = len(ask("query", query="slshudi_needs_person")["result"])
        rules = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
    except requests.RequestException:
        return False
    return seen == PIPELINES and bool(rules) and all(rule["health"] == "ok" for rule in rules)


def begun() -> bool:
    """Whether the alerts began that this world asks for."""
    return {alert["labels"]["alertname"] for alert in ask("alerts")["alerts"]} >= EXPECTED


def check() -> list[str]:
    """What is wrong."""
    wrong = []
    for name, query in queries().items():
        series = len(ask("query", query=query)["result"])
        print(f"{series:5} series  {name}")
        if not series:
            wrong.append(f"{name}: no series of {query}")
    return wrong


def main() -> int:
    """Tests the rules, then the whole way."""
    subprocess.run(["promtool", "test", "rules", str(ROOT / "tests" / "monitoring" / "alerts_test.yaml")], check=True)
    with tempfile.TemporaryDirectory(prefix="slshudi-monitoring-") as name, world(Path(name)) as found:
        folder = Path(name)
        options = [f"--config.file={configured(found, folder)}", f"--storage.tsdb.path={folder / 'data'}"]
        with (folder / "prometheus.log").open("wb") as log:
            server = subprocess.Popen(
                ["prometheus", *options, f"--web.listen-address={HOST}:{_PORT}"], stdout=log, stderr=log
            )
        try:
            until(
                "Prometheus has scraped all", scraped, explain=lambda: (folder / "prometheus.log").read_text()[-2000:]
            )
            wrong = check()
            until(f"the alerts {', '.join(sorted(EXPECTED))} begin", begun)
        finally:
            server.terminate()
            server.wait()
    return exit_code(wrong)


if __name__ == "__main__":
    sys.exit(main())
