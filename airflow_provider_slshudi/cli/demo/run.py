"""The demo from its beginning to its proof, on an example pipeline."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from airflow_provider_slshudi.cli.demo import figures
from airflow_provider_slshudi.cli.demo.airflow_process import HOST, LocalAirflow
from airflow_provider_slshudi.cli.demo.figures import Show, prove
from airflow_provider_slshudi.cli.demo.putter import Putter
from airflow_provider_slshudi.cli.demo.watching import Watch
from airflow_provider_slshudi.config.load import load_pipeline
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import RuntimeMissing, SlsHudiError
from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.local.process import LocalSls
from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.spark.launch import SubprocessLauncher
from airflow_provider_slshudi.transaction.context import Run, Work

PIPELINE = "ad_events"
_OF_WHEEL = Path(__file__).with_name("dags")
DAGS = _OF_WHEEL if _OF_WHEEL.is_dir() else Path(__file__).parents[3] / "dags"
"""This project's examples: a wheel has a copy of the checkout's."""


def write_example(dags: Path, folder: Path, table: str, schedule: str | None = None) -> Pipeline:
    """Writes the example of `dags` into `folder` with the table at `table`, and with `schedule` if given.

    Args:
        dags: the folder with this project's examples.
        folder: the DAGs folder that gets a copy.
        table: the URI of the table's folder.
        schedule: replaces the one of the example's file.

    Raises:
        RuntimeMissing: `dags` has no example.
    """
    example = dags / "pipelines" / f"{PIPELINE}.yaml"
    if not example.is_file():
        raise RuntimeMissing(f"{example} is missing: install the package anew, from a wheel or from a checkout")
    pipeline = load_pipeline(example)
    text = example.read_text(encoding="utf-8").replace(pipeline.table.path, table)
    # The example reads the local server, which has no quota to keep to.
    text = text.replace("source:\n", "source:\n  read_bytes_per_second: 1GB\n")
    if schedule is not None:
        text = text.replace(f"schedule: {pipeline.schedule}", f'schedule: "{schedule}"')
    target = folder / example.name
    folder.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    return load_pipeline(target)


SHARDS = 4
BATCHES = 3
SCHEDULE = "10s"


def run(arguments: Sequence[str]) -> int:
    """Runs the demo; 0 if its proof holds, 1 if not."""
    options = _options(arguments)
    show = Show()
    try:
        with _interruptible():
            return _run(options, show)
    except SlsHudiError as error:
        show.error(str(error))
        return 1
    except KeyboardInterrupt:
        show.error("stopped before the proof")
        return 1


def _run(options: argparse.Namespace, show: Show) -> int:
    _require_port(options.port)
    directory: Path = options.directory.absolute()
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    with LocalSls(directory / "sls") as server:
        connection = server.connection()
        pipeline = write_example(DAGS, directory / "pipelines", f"file://{directory / 'lake' / PIPELINE}", SCHEDULE)
        for other in {*(DAGS / "pipelines").iterdir()} - {DAGS / "pipelines" / f"{PIPELINE}.yaml"}:
            shutil.copy(other, directory / "pipelines")  # of the other examples, which stay paused
        show.say(f"log service on {server.endpoint}, Airflow is starting (its log: {directory / 'airflow'})")
        with (
            Putter(connection, pipeline.source, SHARDS, options.logs, BATCHES) as putter,
            LocalAirflow(directory / "airflow", DAGS, variables_of(directory, connection), options.port) as airflow,
        ):
            airflow.wait_for_dag(f"{PIPELINE}_tail")
            show.say(f"Airflow at {airflow.url}; DAG {PIPELINE}_tail runs every {SCHEDULE}")
            work = work_of(pipeline, directory, connection)
            Watch(work, airflow, putter, show).until_all_is_committed()
            proof = prove(work, putter.acknowledged)
            show.batches(work.ledger, pipeline.name)
            show.proof(proof)
            show.addresses(airflow.url, pipeline.table.path, directory)
            show.decoding(figures.measure(work.connect(), pipeline))
            if not options.exit:
                show.say("Ctrl-C ends everything")
                with suppress(KeyboardInterrupt):
                    signal.pause()
            return 0 if proof.holds else 1


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="slshudi demo", description=__doc__)
    parser.add_argument("--directory", type=Path, default=Path(".demo"), help="made anew (default: .demo)")
    parser.add_argument("--logs", type=int, default=1_000_000, help="how many are put (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8080, help="of Airflow's pages (default: %(default)s)")
    parser.add_argument("--exit", action="store_true", help="end after the proof instead of at Ctrl-C")
    return parser.parse_args(arguments)


def _require_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise RuntimeMissing(
                f"port {port} of {HOST} cannot be had ({error.strerror}): stop what uses it, or choose another with "
                "`--port 8081` (`make demo PORT=8081`)"
            ) from None


def _ledger_file(directory: Path) -> Path:
    return directory / "ledger.db"


def variables_of(directory: Path, connection: SlsConnection) -> Mapping[str, str]:
    """The variables for Airflow: connections, the folder of pipelines."""
    connections = {
        "SLS_DEFAULT": {
            "conn_type": "sls",
            "host": f"http://{connection.endpoint}",
            "login": connection.access_key_id,
            "password": connection.access_key_secret.reveal(),
            "extra": {"auth_version": "v1"},
        },
        "SLSHUDI_LEDGER": {
            "conn_type": "slshudi_ledger",
            "schema": str(_ledger_file(directory)),
            "extra": {"dialect": "sqlite"},
        },
        "SPARK_DEFAULT": {"conn_type": "spark", "host": "local[2]"},
    }
    return {
        **{f"AIRFLOW_CONN_{name}": json.dumps(fields) for name, fields in connections.items()},
        "AIRFLOW__SLSHUDI__PIPELINES_FOLDER": str(directory / "pipelines"),
    }


def work_of(pipeline: Pipeline, directory: Path, connection: SlsConnection) -> Work:
    """Opens the same ledger and log service without Airflow; makes the ledger."""
    engine = open_engine(f"sqlite:///{_ledger_file(directory)}")
    migrate(engine)
    source = pipeline.source
    return Work(
        pipeline,
        Ledger(engine),
        SubprocessLauncher(),
        lambda: LogService(connection, source.project, source.logstore),
        Run("demo", f"process-{os.getpid()}"),
    )


class _interruptible:
    """SIGTERM ends the demo as Ctrl-C does: everything that it started ends with it."""

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGTERM, self._interrupt)

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, self._before)

    @staticmethod
    def _interrupt(*_: object) -> None:
        raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
