"""The secrets of docker-compose.yaml's containers: made once, kept in a volume that only their user can read.

    python secrets_of.py        makes those that are not there yet

A variable that is set from outside is used instead.
"""

import base64
import json
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

FOLDER = "SLSHUDI_KEYS"
"""The variable that names the folder; without it there are none."""
SPARK = "SLSHUDI_SPARK_SECRET"

MAKE: Mapping[str, Callable[[], str]] = {
    "AIRFLOW__CORE__FERNET_KEY": lambda: base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
    "AIRFLOW__API__SECRET_KEY": lambda: secrets.token_hex(32),
    "AIRFLOW__API_AUTH__JWT_SECRET": lambda: secrets.token_hex(64),
    SPARK: lambda: secrets.token_hex(32),
}


def make(folder: Path) -> None:
    """Makes the file of secrets, unless it is there: it appears whole or not at all."""
    file = folder / "secrets.json"
    if file.exists():
        return
    made = folder / "secrets.new"
    made.touch(mode=0o600)
    made.write_text(json.dumps({name: new() for name, new in MAKE.items()}), encoding="utf-8")
    made.rename(file)


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables to set for a container with this environment; Spark finds its secret in a file of settings."""
    if not (folder := environment.get(FOLDER)):
        return {}
    kept = json.loads((Path(folder) / "secrets.json").read_text(encoding="utf-8"))
    found = {name: environment.get(name) or kept[name] for name in MAKE}
    conf = Path.home() / "spark-conf"
    conf.mkdir(mode=0o700, exist_ok=True)
    settings = conf / "spark-defaults.conf"
    settings.unlink(missing_ok=True)
    settings.touch(mode=0o600)
    # https://spark.apache.org/docs/3.5.9/security.html#spark-rpc-communication-protocol-between-spark-processes
    lines = [
        "spark.authenticate true",
        f"spark.authenticate.secret {found.pop(SPARK)}",
        "spark.network.crypto.enabled true",
    ]
    settings.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return {**found, "SPARK_CONF_DIR": str(conf)}


if __name__ == "__main__":
    make(Path(os.environ[FOLDER]))
