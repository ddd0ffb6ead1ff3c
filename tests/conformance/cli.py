"""The command line of aliyun-log-cli, in an environment of its own: it pulls in packages that nothing here uses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from airflow_provider_slshudi.sls.connection import SlsConnection

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENT = "aliyun-log-cli==0.2.10"
PLACE = ROOT / ".cache" / REQUIREMENT


def command() -> Path:
    """The command `aliyunlog`, which is installed when it is not there."""
    found, python = PLACE / "bin" / "aliyunlog", PLACE / "bin" / "python"
    if not (PLACE / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", PLACE], check=True)
        install: list[str | Path] = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        install += ["-c", ROOT / "constraints.txt"]
        subprocess.run([python, *install, REQUIREMENT], check=True)
        (PLACE / "complete").touch()
    return found


def run(server: str, connection: SlsConnection, home: Path, *arguments: str) -> Any:
    """What `aliyunlog log ARGUMENTS` answers, as it talks to `server` through http_proxy. Raises CalledProcessError."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),  # where it looks for other credentials and writes its log
        "http_proxy": f"http://{server}",
        "ALIYUN_LOG_CLI_ACCESSID": connection.access_key_id,
        "ALIYUN_LOG_CLI_ACCESSKEY": connection.access_key_secret.reveal(),
        "ALIYUN_LOG_CLI_STS_TOKEN": connection.security_token.reveal(),
        "ALIYUN_LOG_CLI_ENDPOINT": "cn-local.log.aliyuncs.com",
        "ALIYUN_LOG_CLI_SIGN_VERSION": connection.auth_version,
        "ALIYUN_LOG_CLI_REGION_ID": connection.region,
    }
    asked: list[str | Path] = [command(), "log", *arguments, "--format-output=json"]
    done = subprocess.run(asked, env=environment, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise AssertionError(f"{arguments} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return json.loads(done.stdout) if done.stdout.strip() else None
