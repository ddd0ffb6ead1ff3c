"""The JVM of a Spark driver as seen through py4j; every use of Hudi's classes goes through it."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from airflow_provider_slshudi.storage import owners

if TYPE_CHECKING:
    from pyspark import SparkContext

# Its schema has to be the first of its kind in Hudi's cache of schemas: Hudi compares them by identity. If something,
# say a rollback, reads the metadata table first, each later commit of the JVM writes past the end of a record.
_FIRST_CLASS = "org.apache.hudi.metadata.HoodieMetadataPayload"


class Gateway:
    """A way to Hudi's classes; with a SparkContext also to its write client."""

    cpu_before = 0.0
    """CPU seconds that are another job's; a process that stays does several."""

    def __init__(self, jvm: Any, hadoop_conf: Any, jsc: Any = None) -> None:
        self.jvm, self.jsc = jvm, jsc
        keep_names(jvm, "java", "org")
        _forget_sources(jvm, hadoop_conf)
        self.hudi = jvm.org.apache.hudi
        self.storage_conf = self.hudi.hadoop.fs.HadoopFSUtils.getStorageConf(hadoop_conf)

    @classmethod
    def without_context(cls) -> Gateway:
        """The JVM alone: enough for the timeline, and seconds cheaper than a SparkContext."""
        jvm = driver_jvm()
        conf = jvm.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(jvm.org.apache.spark.SparkConf())
        return cls(jvm, conf)

    @classmethod
    def of(cls, spark: SparkContext) -> Gateway:
        """The driver JVM of a SparkContext; call it before Hudi reads or writes a table there."""
        jsc: Any = spark._jsc
        gateway = cls(spark._jvm, jsc.hadoopConfiguration(), jsc)
        gateway.java_class(_FIRST_CLASS)
        return gateway

    def meta_client(self, base: str) -> Any:
        """A new HoodieTableMetaClient, which reads the table at `base`."""
        builder = self.hudi.common.table.HoodieTableMetaClient.builder()
        return builder.setBasePath(base).setConf(self.storage_conf).build()

    def requested(self, meta: Any, instant: str, action: str) -> Any:
        """A HoodieInstant in the state REQUESTED."""
        return self._instant(meta, instant, action, "REQUESTED")

    def inflight(self, meta: Any, instant: str, action: str) -> Any:
        """A HoodieInstant in the state INFLIGHT."""
        return self._instant(meta, instant, action, "INFLIGHT")

    def cpu_seconds(self) -> float | None:
        """CPU seconds that the JVM and this interpreter have taken so far; None where the system does not tell."""
        try:
            taken = self.jvm.java.lang.ProcessHandle.current().info().totalCpuDuration()
            if not taken.isPresent():
                return None
            return float(taken.get().toMillis() / 1000 + time.process_time() - self.cpu_before)
        except Py4JError:
            return None

    def _instant(self, meta: Any, instant: str, action: str, wanted: str) -> Any:
        states = self.java_class("org.apache.hudi.common.table.timeline.HoodieInstant$State").getEnumConstants()
        state = next(state for state in states if state.toString() == wanted)
        return meta.createNewInstant(state, action, instant)

    def java_class(self, name: str) -> Any:
        """A class of the application's class path."""
        loader = self.jvm.java.lang.Thread.currentThread().getContextClassLoader()
        return self.jvm.java.lang.Class.forName(name, True, loader)


def driver_jvm() -> Any:
    """The py4j view of the JVM that started this interpreter; gives a nameless user a name. Call it first of all."""
    from pyspark import SparkContext

    SparkContext._ensure_initialized()
    jvm: Any = SparkContext._jvm
    if owners.is_nameless():
        # Before anything asks Hadoop for the user: Hadoop would ask the system.
        users = jvm.org.apache.hadoop.security.UserGroupInformation
        users.setLoginUser(users.createRemoteUser(owners.hadoop_name()))
    return jvm


def keep_names(jvm: Any, *names: str) -> None:
    """Have py4j ask for each name once: for each mention it looks for a class in every jar, a dozen packages over."""
    for name in names:
        setattr(jvm, name, getattr(jvm, name))


def _forget_sources(jvm: Any, hadoop_conf: Any) -> None:
    """Keep Hadoop from sending with each closure where every setting came from: a thousand names, each compressed.

    Hudi's tables and file systems are part of its closures, and bring the settings along; no code there asks for more.
    """
    # A Hadoop without this field only takes longer.
    with suppress(Py4JError):
        field = jvm.java.lang.Class.forName("org.apache.hadoop.conf.Configuration").getDeclaredField("updatingResource")
        field.setAccessible(True)
        # It is made with the first setting.
        if (sources := field.get(hadoop_conf)) is not None:
            sources.clear()
