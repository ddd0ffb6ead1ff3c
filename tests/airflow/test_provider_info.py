"""What Airflow itself says about the provider, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from airflow_provider_slshudi import __version__


def airflow(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "airflow", *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "slshudi" not in done.stderr, done.stderr  # no warning about this provider
    return done.stdout


def listed(*arguments: str) -> list[dict[str, Any]]:
    output = airflow(*arguments, "-o", "json")
    found: list[dict[str, Any]] = json.loads(output[output.index("[{") :])
    return found


def test_airflow_lists_the_provider_its_hooks_its_links_and_its_options() -> None:
    providers = {item["package_name"]: item for item in listed("providers", "list")}
    assert providers["airflow-provider-slshudi"]["version"] == __version__

    hooks = {item["connection_type"]: item for item in listed("providers", "hooks")}
    assert hooks["sls"]["class"] == "airflow_provider_slshudi.hooks.sls.SlsHook"
    assert hooks["slshudi_ledger"]["class"] == "airflow_provider_slshudi.hooks.ledger.LedgerHook"

    links = {item["extra_link_class_name"] for item in listed("providers", "links")}
    assert {
        f"airflow_provider_slshudi.plugins.links.{name}Link" for name in ("Transaction", "Pipeline", "Spark")
    } <= links

    assert airflow("config", "get-value", "slshudi", "ledger_conn_id").splitlines()[-1] == "slshudi_ledger"
