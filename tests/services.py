"""Services that tests run against, of packages that `make setup` installs."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from secrets import token_hex

import pytest

from airflow_provider_slshudi.cli.demo.airflow_process import free_port
from airflow_provider_slshudi.exceptions import JobFailed
from airflow_provider_slshudi.spark import runtime
from tests.waiting import LONGEST_SECONDS, until


class Service:
    """A process that may be killed and started again, where its clients look for it; use it in a `with`.

    Args:
        command: what starts it.
        environment: all its variables.
        log: where its output is kept.
        answers: whether it serves.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], log: Path, answers: Callable[[], object]
    ) -> None:
        self.log, self._command, self._environment, self._answers = log, command, dict(environment), answers

    def __enter__(self) -> Service:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def start(self) -> None:
        """Starts it; returns once it answers."""
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

        def answers() -> object:
            if not self.runs():
                pytest.fail(f"{self._command[0]} ended: {self.log.read_text()[-3000:]}")
            return self._answers()

        until(f"{self.log.stem} answers", answers, explain=lambda: self.log.read_text()[-3000:])

    def kill(self) -> None:
        """Ends it at once."""
        self._process.kill()

    def stop(self) -> None:
        """Ends it."""
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()


@contextmanager
def telling(said: Callable[[], str]) -> Iterator[None]:
    """Prints what a cluster's processes said where a job fails in the block."""
    try:
        yield
    except JobFailed:
        print(said())
        raise


BRIEF = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Java's options where two cores start many JVMs that live for seconds."""


@dataclass(frozen=True)
class SparkCluster:
    """A standalone cluster: its master, the address of its page, the folder of its settings with its secret, and its
    processes by name."""

    master: str
    web: str
    settings: Path
    services: dict[str, Service] = field(default_factory=dict)

    def page(self) -> str:
        """What the master tells of workers and applications, as JSON."""
        return _page(f"{self.web}/json/")


@contextmanager
def spark_cluster(
    environment: Mapping[str, str], workers: int = 1, secret: str = "", cores: int = 2
) -> Iterator[SparkCluster]:
    """A Spark standalone cluster with `workers` of so many cores each; all have `environment` over ours.

    It has a secret and encrypts: drivers need `settings` as their SPARK_CONF_DIR.
    """
    home = Path(runtime.environment()["SPARK_HOME"])
    with tempfile.TemporaryDirectory(prefix="slshudi-spark-") as directory, ExitStack() as processes:
        port, web = free_port(), free_port()
        settings = Path(directory, "conf")
        settings.mkdir()
        known = {"spark.authenticate": "true", "spark.authenticate.secret": secret or token_hex()}
        known["spark.network.crypto.enabled"] = "true"
        lines = [f"{name} {value}\n" for name, value in known.items()]
        (settings / "spark-defaults.conf").write_text("".join(lines))
        variables = {**os.environ, **runtime.environment(), "JAVA_TOOL_OPTIONS": BRIEF, **environment}
        variables |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONF_DIR": str(settings)}
        cluster = SparkCluster(f"spark://127.0.0.1:{port}", f"http://127.0.0.1:{web}", settings)

        def start(name: str, role: str, web: int, *arguments: str) -> None:
            command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", "--webui-port", str(web)]
            log, answers = Path(directory, f"{name}.log"), partial(_reachable, web)
            service = Service([*command, *arguments], variables, log, answers)
            cluster.services[name] = processes.enter_context(service)

        start("spark master", "master.Master", web, "--host", "127.0.0.1", "--port", str(port))
        for number in range(workers):
            room = ["--cores", str(cores), "--memory", "2g", "--work-dir", str(Path(directory, f"worker-{number}"))]
            start(f"spark worker {number}", "worker.Worker", free_port(), *room, cluster.master)
        until("the Spark workers are known", lambda: cluster.page().count('"state" : "ALIVE"') == workers)
        yield cluster


@dataclass(frozen=True)
class S3Store:
    """An S3 store: the AWS_* environment of its clients, and its process."""

    environment: dict[str, str]
    service: Service


@contextmanager
def s3_store(bucket: str, secret: str = "") -> Iterator[dict[str, str]]:
    """The AWS_* environment of an S3 store with an empty bucket."""
    with s3_server(bucket, secret) as store:
        yield store.environment


@contextmanager
def s3_server(bucket: str, secret: str = "", domain: str = "") -> Iterator[S3Store]:
    """An S3 store with an empty bucket, whose name may also stand before the `domain`."""
    from pyarrow import fs

    key = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": secret or "tests-secret", "AWS_REGION": "us-east-1"}
    with tempfile.TemporaryDirectory(prefix="slshudi-s3-") as directory:
        names = ("master.port", "volume.port", "filer.port", "s3.port")
        # Each port's number plus 10,000 is taken for gRPC; both are below those that any connection may get, which
        # begin at 32,768. Processes that look at once begin at different numbers.
        least = os.getpid() % 900
        ports = {name: _free_pair(range(11_000 + 1000 * n + least, 12_000 + 1000 * n)) for n, name in enumerate(names)}
        command = [str(Path(sys.executable).with_name("weed")), "server", f"-dir={directory}", "-ip=127.0.0.1"]
        command += [
            "-filer",
            "-s3",
            # Each of these has one port for all who start a store on a machine.
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-master.volumeSizeLimitMB=64",
            # As many as the disk has room for; eight of them are full after half a gigabyte.
            "-volume.max=0",
            f"-s3.domainName={domain}",
            *(f"-{name}={port}" for name, port in ports.items()),
        ]
        answers = partial(_reachable, ports["s3.port"])
        with Service(command, {**os.environ, **key}, Path(directory) / "store.log", answers) as service:
            endpoint = f"http://127.0.0.1:{ports['s3.port']}"
            store = fs.S3FileSystem(
                access_key=key["AWS_ACCESS_KEY_ID"],
                secret_key=key["AWS_SECRET_ACCESS_KEY"],
                region=key["AWS_REGION"],
                endpoint_override=endpoint,
                allow_bucket_creation=True,
                # The store keeps its first object once its parts know one another, which takes a busy machine long.
                request_timeout=LONGEST_SECONDS,
            )
            store.create_dir(bucket)
            with store.open_output_stream(f"{bucket}/first") as stream:
                stream.write(b"x")
            store.delete_file(f"{bucket}/first")
            try:
                yield S3Store({**key, "AWS_ENDPOINT_URL": endpoint}, service)
            finally:
                # Asked to end, it takes twenty seconds for farewells, and its folder goes anyway.
                service.kill()


@contextmanager
def redis_server() -> Iterator[tuple[str, Service]]:
    """The URL of an empty Redis (Debian's package), which keeps what it has acknowledged, and its process."""
    with tempfile.TemporaryDirectory(prefix="slshudi-redis-") as directory:
        port = free_port()
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", directory]
        command += ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        with Service(command, os.environ, Path(directory, "broker.log"), partial(_reachable, port)) as service:
            yield f"redis://127.0.0.1:{port}/0", service


def has_redis() -> bool:
    """Whether Debian's package is installed."""
    return shutil.which("redis-server") is not None


@contextmanager
def hive_metastore(port: int = 0) -> Iterator[str]:
    """The URI of an empty Hive metastore, made of what Spark brings along; port 0 is a free one."""
    variables = {**os.environ, **runtime.environment()}
    with tempfile.TemporaryDirectory(prefix="slshudi-hive-") as directory:
        options = {
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={directory}/db;create=true",
            "datanucleus.schema.autoCreateAll": "true",
            "hive.metastore.schema.verification": "false",
            "hive.metastore.warehouse.dir": f"{directory}/warehouse",
            # Its logger's way of not waiting is not among Spark's jars.
            "hive.async.log.enabled": "false",
        }
        given = "".join(
            f"<property><name>{name}</name><value>{value}</value></property>" for name, value in options.items()
        )
        Path(directory, "hive-site.xml").write_text(f"<configuration>{given}</configuration>")
        classes, port = f"{directory}{os.pathsep}{variables['SPARK_HOME']}/jars/*", port or free_port()
        java = [str(Path(variables["JAVA_HOME"], "bin", "java")), "-XX:+UseSerialGC", "-cp", classes]
        command = [*java, "org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port)]
        variables["TMPDIR"] = directory
        with Service(command, variables, Path(directory) / "metastore.log", partial(_reachable, port)):
            yield f"thrift://127.0.0.1:{port}"


@contextmanager
def closed_port() -> Iterator[int]:
    """A port of loopback that refuses connections, and that nobody else takes meanwhile."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        yield nobody.getsockname()[1]


def _reachable(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _page(url: str) -> str:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def _free_pair(among: Iterable[int]) -> int:
    """The first port of `among` that nobody listens on, nor on the one 10,000 above."""
    for wanted in among:
        with suppress(OSError), socket.socket() as low, socket.socket() as high:
            low.bind(("127.0.0.1", wanted))
            high.bind(("127.0.0.1", wanted + 10_000))
            return wanted
    pytest.fail("no free port")
