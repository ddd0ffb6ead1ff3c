"""`python -m tests.topology.first_batch`: the six steps of docs/first-batch.md, done and timed.

Somebody has an Airflow, and a Spark cluster of two workers with nothing but Python. They install the wheel, and in the
end a first batch is committed. Each step is the command of that page, in an environment of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from aliyun.log import LogItem, PutLogsRequest

from airflow_provider_slshudi.cli.demo.airflow_process import LocalAirflow
from airflow_provider_slshudi.local import LocalSls
from tests.local.sdk import by_ip
from tests.machine import ROOT, event
from tests.services import spark_cluster

NAME, PROJECT, LOGSTORE, LOGS = "ad_events", "ads", "events", 1000
_SECONDS = 600.0


class Steps:
    """Prints each step's seconds; `seconds` has them all."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """One of them."""
        began = time.monotonic()
        yield
        self.seconds.append(time.monotonic() - began)
        print(f"step {len(self.seconds)}: {what}: {self.seconds[-1]:.1f} s", flush=True)


class Theirs(LocalAirflow):
    """An Airflow of another Python environment."""

    def __init__(self, python: Path, home: Path, environment: dict[str, str]) -> None:
        super().__init__(home / "airflow", home / "dags", environment)
        self._python = str(python)

    def command(self, *arguments: str | Path) -> str:
        """What a command of that environment says; ends this program where it fails."""
        program, *rest = arguments
        line = [Path(self._python).with_name(str(program)), *rest]
        done = subprocess.run(line, env=self.environment, cwd=self.directory, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{program} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout


def main() -> int:
    """Does it; the last line is the figure."""
    with tempfile.TemporaryDirectory(prefix="slshudi-first-") as folder, ExitStack() as stack:
        home = Path(folder)
        for name in ("airflow", "dags"):
            (home / name).mkdir()
        wheel, python = prepared(home)
        server = stack.enter_context(LocalSls(home / "sls"))
        put(server)
        cluster = stack.enter_context(spark_cluster({"PYTHONPATH": ""}, workers=2))
        told = {"SPARK_CONF_DIR": str(cluster.settings), "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": ""}
        airflow, steps = Theirs(python, home, told), Steps()
        with steps.step("the wheel is installed, and Airflow started anew"):
            install(python, wheel)
            stack.enter_context(airflow)
        with steps.step("three connections"):
            file = home / "connections.json"
            file.write_text(json.dumps(connections(home, server, cluster.master)))
            airflow.command("airflow", "connections", "import", file)
        with steps.step("the archive for executors"):
            archive = home / "slshudi.tar.gz"
            airflow.command("slshudi", "pack", archive)
        with steps.step("a pipeline's file and a DAG's file"):
            source = ["--project", PROJECT, "--logstore", LOGSTORE, "--path", f"file://{home}/lake/{NAME}"]
            airflow.command("slshudi", "init", NAME, *source, "--json")
        with steps.step("the archive's name in the pipeline's file"):
            described = next((home / "dags").rglob(f"{NAME}.yaml"))
            bare = {"spark.pyspark.python": str(home / "bare" / "bin" / "python")}
            spark = {"connection": "spark_default", "archive": str(archive), "conf": bare}
            text = described.read_text(encoding="utf-8")
            if "\nspark:" in text:
                raise SystemExit(f"the file has settings of Spark already:\n{text}")
            described.write_text(f"{text}spark: {json.dumps(spark)}\n", encoding="utf-8")
        with steps.step("the DAG is switched on, and its first batch committed"):
            airflow.wait_for_dag(f"{NAME}_tail", _SECONDS)
            airflow.pause(f"{NAME}_tail", False)
            rows = first_batch(airflow)
        print(
            f"first batch: {len(steps.seconds)} steps, {sum(steps.seconds):.0f} s until {rows} rows of {LOGS} logs "
            "were committed by executors that have Python alone"
        )
        return 0 if rows == LOGS else 1


def prepared(home: Path) -> tuple[Path, Path]:
    """What there is beforehand: the wheel, an environment with Airflow, a Python with nothing for executors."""
    pip: list[str | Path] = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--wheel-dir", home / "wheel", ROOT, ROOT / "native"], check=True)
    for name in ("bare", "theirs"):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", home / name], check=True)
    python = home / "theirs" / "bin" / "python"
    install(python, "apache-airflow")
    return next((home / "wheel").glob("airflow*.whl")), python


def install(python: Path, what: Path | str) -> None:
    """Installs into an environment, in versions that fit; of a wheel also its neighbours."""
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    beside: list[str | Path] = ["--find-links", what.parent] if isinstance(what, Path) else []
    subprocess.run([*pip, "-c", ROOT / "constraints.txt", *beside, what], check=True)


def put(server: LocalSls) -> None:
    """Logs that wait."""
    client = by_ip(server.connection())
    client.create_project(PROJECT, "first")
    client.create_logstore(PROJECT, LOGSTORE, ttl=7, shard_count=2)
    for begin in range(0, LOGS, 100):
        items = [LogItem(int(time.time()), contents=event(number)) for number in range(begin, begin + 100)]
        client.put_logs(PutLogsRequest(PROJECT, LOGSTORE, "ads", "10.0.0.1", items))


def connections(home: Path, server: LocalSls, master: str) -> dict[str, dict[str, object]]:
    """The three, as `airflow connections import` reads them."""
    sls, (spark, port) = server.connection(), master.rsplit(":", 1)
    key = {"login": sls.access_key_id, "password": sls.access_key_secret.reveal()}
    return {
        "sls_default": {"conn_type": "sls", "host": f"http://{sls.endpoint}", "extra": {"auth_version": "v1"}, **key},
        "slshudi_ledger": {
            "conn_type": "slshudi_ledger",
            "schema": str(home / "ledger.db"),
            "extra": {"dialect": "sqlite"},
        },
        "spark_default": {"conn_type": "spark", "host": spark, "port": int(port)},
    }


def first_batch(airflow: Theirs) -> int:
    """Rows of the first committed batch."""
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        shown = json.loads(airflow.command("slshudi", "ledger", "show", "--json"))
        for transaction in shown["transactions"] if isinstance(shown, dict) else shown:
            if transaction["state"] == "COMMITTED":
                return int(transaction["rows"])
        time.sleep(1)
    raise SystemExit(f"no batch was committed within {_SECONDS:.0f} s; see {airflow.directory}")


if __name__ == "__main__":
    sys.exit(main())
