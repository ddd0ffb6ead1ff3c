"""Hadoop for tests: HDFS and YARN for real, as one process, from the jar that Hadoop makes for this."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, java_import, launch_gateway

from airflow_provider_slshudi.spark import packages
from tests.services import BRIEF
from tests.waiting import until

COORDINATES = (
    "org.apache.hadoop:hadoop-client-minicluster:3.3.4",
    "junit:junit:4.13.2",
    "org.bouncycastle:bcpkix-jdk15on:1.70",
)
# Hadoop 3.3 reads private fields of Java's own classes.
_OPENED = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.lang", "java.util", "java.net", "java.nio")]
_CLASSES = (
    "hdfs.MiniDFSCluster",
    "hdfs.MiniDFSNNTopology",
    "hdfs.server.namenode.ha.HATestUtil",
    "yarn.conf.YarnConfiguration",
    "yarn.server.MiniYARNCluster",
)
_YARN = {
    "yarn.resourcemanager.scheduler.class": (
        "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler"
    ),
    "yarn.nodemanager.resource.memory-mb": "4096",
    "yarn.nodemanager.resource.cpu-vcores": "2",
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.delete.debug-delay-sec": "600",
    "yarn.scheduler.minimum-allocation-mb": "256",
    "yarn.nodemanager.disk-health-checker.enable": "false",
    # By default it uses no disk that is more than nine tenths full.
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
}


@dataclass(frozen=True)
class Hadoop:
    """A running HDFS and YARN: the root of its files, and the folder of its settings, for HADOOP_CONF_DIR."""

    files: str
    settings: Path

    def containers(self) -> list[Path]:
        """The folders in which containers ran, and where their output is."""
        return [path for path in self.settings.parent.rglob("container_*") if path.is_dir()]

    def said(self) -> str:
        """The last that each container printed."""
        files = sorted(path for folder in self.containers() for path in folder.rglob("std*") if path.is_file())
        return "\n".join(f"{path.parent.name} {path.name}: {path.read_text()[-2000:]}" for path in files)


@dataclass(frozen=True)
class NameNodes:
    """Two name nodes of one HDFS, of which one is active.

    Attributes:
        files: the root of the files, by the nodes' common name.
        told: the settings that know this name.
        settings: the folder with all of them, for HADOOP_CONF_DIR.
    """

    files: str
    told: Mapping[str, str]
    settings: Path
    _cluster: Any
    _no_words: Any

    def hand_over(self) -> None:
        """The active one steps back, and the other one takes its place."""
        active = self._active()
        self._cluster.transitionToStandby(active)
        self._takes_over(1 - active)

    def fail_over(self) -> None:
        """The active one dies, and the other one takes its place; it comes back as the one that waits."""
        active = self._active()
        self._cluster.shutdownNameNode(active)
        self._takes_over(1 - active)
        self._cluster.restartNameNode(active, False, self._no_words)

    def _active(self) -> int:
        states = [str(self._cluster.getNamesystem(number).getHAState()) for number in range(2)]
        return states.index("active")

    def _takes_over(self, number: int) -> None:
        # A node that has just begun knows of no blocks yet.
        until("a name node has left its safe mode", lambda: not self._cluster.getNamesystem(number).isInSafeMode())
        self._cluster.transitionToActive(number)


def tell(folder: Path, settings: Mapping[str, str], file: str = "hdfs-site.xml") -> None:
    """Writes settings as Hadoop reads them."""
    told = "".join(f"<property><name>{key}</name><value>{value}</value></property>" for key, value in settings.items())
    (folder / file).write_text(f"<configuration>{told}</configuration>")


def service(name: str, nodes: Mapping[str, str]) -> dict[str, str]:
    """The settings of a name service with nodes at these addresses."""
    addresses = {f"dfs.namenode.rpc-address.{name}.{node}": address for node, address in nodes.items()}
    return {"dfs.nameservices": name, f"dfs.ha.namenodes.{name}": ",".join(nodes), **addresses}


@contextmanager
def hadoop(nodes: int = 2) -> Iterator[Hadoop]:
    """HDFS with one data node, and YARN with `nodes` node managers of two cores each; none without any."""
    with _gateway() as (root, gateway):
        jvm = gateway.jvm
        conf = _settings(jvm, root, _YARN)
        _started(jvm.MiniDFSCluster.Builder(conf))
        if nodes:
            yarn = jvm.MiniYARNCluster("slshudi", nodes, 1, 1)
            yarn.init(conf)
            yarn.start()
            yarn.waitForNodeManagersToConnect(60_000)
            conf = yarn.getConfig()
        yield Hadoop(str(conf.get("fs.defaultFS")), _kept(jvm, root, conf))


@contextmanager
def name_nodes() -> Iterator[NameNodes]:
    """HDFS with one data node and two name nodes, which share their edits through a folder."""
    with _gateway() as (root, gateway):
        jvm = gateway.jvm
        conf = _settings(jvm, root, {"dfs.ha.tail-edits.period": "1"})
        builder = jvm.MiniDFSCluster.Builder(conf).nnTopology(jvm.MiniDFSNNTopology.simpleHATopology())
        cluster = _started(builder, active=0)
        jvm.HATestUtil.setFailoverConfigurations(cluster, conf)
        uri = jvm.HATestUtil.getLogicalUri(cluster)
        name = uri.getHost()
        nodes = conf.get(f"dfs.ha.namenodes.{name}").split(",")
        # Hadoop's test says a URL here, which its own client alone takes.
        addresses = {node: f"localhost:{cluster.getNameNodePort(number)}" for number, node in enumerate(nodes)}
        provider = f"dfs.client.failover.proxy.provider.{name}"
        told = service(name, addresses) | {provider: conf.get(provider)}
        for key, value in told.items():
            conf.set(key, value)
        yield NameNodes(str(uri), told, _kept(jvm, root, conf), cluster, gateway.new_array(jvm.String, 0))


@contextmanager
def _gateway() -> Iterator[tuple[Path, JavaGateway]]:
    """A Java process with Hadoop's classes, and the folder of all that it writes."""
    jars = [str(jar) for coordinate in COORDINATES for jar in packages._package(coordinate)]
    spark = packages.spark_home() / "jars"
    with tempfile.TemporaryDirectory(prefix="slshudi-hadoop-") as directory:
        root = Path(directory)
        before = Path.cwd()
        os.chdir(directory)
        os.environ.setdefault("JAVA_HOME", str(packages.java_home()))
        log = (root / "log").open("w")
        try:
            port = launch_gateway(
                classpath=":".join([*jars, f"{spark}/*"]),
                jarpath=str(next(spark.glob("py4j-*.jar"))),
                javaopts=[*_OPENED, *BRIEF.split(), "-Xmx1g", f"-Dtest.build.data={root}", f"-Dhadoop.log.dir={root}"],
                java_path=str(packages.java_home() / "bin" / "java"),
                die_on_exit=True,
                redirect_stdout=log,
                redirect_stderr=log,
            )
        finally:
            os.chdir(before)
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
        for name in _CLASSES:
            java_import(gateway.jvm, f"org.apache.hadoop.{name}")
        try:
            yield root, gateway
        finally:
            gateway.shutdown()
            log.close()


def _settings(jvm: Any, root: Path, more: Mapping[str, str]) -> Any:
    """Hadoop's configuration of a cluster in a folder."""
    conf = jvm.YarnConfiguration()
    for name, value in {"dfs.replication": "1", "hadoop.tmp.dir": str(root / "tmp"), **more}.items():
        conf.set(name, value)
    return conf


def _started(builder: Any, active: int | None = None) -> Any:
    """The HDFS that a builder makes, of which the name node `active` is made so."""
    cluster = builder.numDataNodes(1).build()
    if active is not None:
        cluster.transitionToActive(active)
    cluster.waitActive()
    return cluster


def _kept(jvm: Any, root: Path, conf: Any) -> Path:
    """The folder with a configuration's files, made in a cluster's."""
    settings = root / "conf"
    settings.mkdir()
    # A class for tests of Hadoop's own, which clients do not have.
    conf.unset("net.topology.node.switch.mapping.impl")
    stream = jvm.java.io.FileOutputStream(str(settings / "core-site.xml"))
    conf.writeXml(stream)
    stream.close()
    for name in ("hdfs-site.xml", "yarn-site.xml"):
        (settings / name).write_bytes((settings / "core-site.xml").read_bytes())
    return settings
