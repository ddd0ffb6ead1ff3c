"""Hadoop for tests: HDFS and YARN for real, as one process, from the jar that Hadoop makes for this."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from py4j.java_gateway import GatewayParameters, JavaGateway, java_import, launch_gateway

from airflow_provider_slshudi.spark import packages
from tests.services import BRIEF

COORDINATES = (
    "org.apache.hadoop:hadoop-client-minicluster:3.3.4",
    "junit:junit:4.13.2",
    "org.bouncycastle:bcpkix-jdk15on:1.70",
)
# Hadoop 3.3 reads private fields of Java's own classes.
_OPENED = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.lang", "java.util", "java.net", "java.nio")]


_SERVER = "org.apache.hadoop.yarn.server"


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


@contextmanager
def hadoop(nodes: int = 2) -> Iterator[Hadoop]:
    """HDFS with one data node, and YARN with `nodes` node managers of two cores each; none without any."""
    jars = [str(jar) for coordinate in COORDINATES for jar in packages._package(coordinate)]
    spark = packages.spark_home() / "jars"
    with tempfile.TemporaryDirectory(prefix="slshudi-hadoop-") as directory:
        root = Path(directory)
        settings = root / "conf"
        settings.mkdir()
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
        jvm = gateway.jvm
        for name in ("hadoop.hdfs.MiniDFSCluster", "hadoop.yarn.server.MiniYARNCluster", "hadoop.yarn.conf.*"):
            java_import(jvm, f"org.apache.{name}")
        try:
            conf = jvm.org.apache.hadoop.yarn.conf.YarnConfiguration()
            for name, value in {
                "dfs.replication": "1",
                "hadoop.tmp.dir": str(root / "tmp"),
                "yarn.resourcemanager.scheduler.class": f"{_SERVER}.resourcemanager.scheduler.fifo.FifoScheduler",
                "yarn.nodemanager.resource.memory-mb": "4096",
                "yarn.nodemanager.resource.cpu-vcores": "2",
                "yarn.nodemanager.vmem-check-enabled": "false",
                "yarn.nodemanager.delete.debug-delay-sec": "600",
                "yarn.scheduler.minimum-allocation-mb": "256",
                "yarn.nodemanager.disk-health-checker.enable": "false",
                # By default it uses no disk that is more than nine tenths full.
                "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
            }.items():
                conf.set(name, value)
            dfs = jvm.MiniDFSCluster.Builder(conf).numDataNodes(1).build()
            dfs.waitActive()
            kept = conf
            if nodes:
                yarn = jvm.MiniYARNCluster("slshudi", nodes, 1, 1)
                yarn.init(conf)
                yarn.start()
                yarn.waitForNodeManagersToConnect(60_000)
                kept = yarn.getConfig()
            # A class for tests of Hadoop's own, which clients do not have.
            kept.unset("net.topology.node.switch.mapping.impl")
            stream = jvm.java.io.FileOutputStream(str(settings / "core-site.xml"))
            kept.writeXml(stream)
            stream.close()
            for name in ("hdfs-site.xml", "yarn-site.xml"):
                (settings / name).write_bytes((settings / "core-site.xml").read_bytes())
            yield Hadoop(str(kept.get("fs.defaultFS")), settings)
        finally:
            gateway.shutdown()
            log.close()
