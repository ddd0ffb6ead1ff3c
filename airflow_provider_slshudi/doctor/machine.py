"""This machine: Java, Spark, Hudi's jars, locale, cache."""

from __future__ import annotations

import os
import tempfile
from importlib.metadata import PackageNotFoundError, version

from airflow_provider_slshudi import owners
from airflow_provider_slshudi.doctor.finding import Check, Seen, ok, unknown, warning, wrong
from airflow_provider_slshudi.exceptions import RuntimeMissing
from airflow_provider_slshudi.spark import packages

_SPARK = "3.5."
_PREPARE = "`python -m airflow_provider_slshudi.spark.runtime{}` does it now"


def checks() -> list[Check]:
    """All checks of this machine."""
    return [
        Check("Java", java),
        Check("Spark", spark),
        Check("cache", cache),
        Check("Hudi", lambda: jars(False)),
        Check("archive", archive),
        Check("locale", locale),
    ]


def java() -> Seen:
    """A Java 17."""
    home, named = packages.java_home(), os.environ.get("JAVA_HOME")
    unused = named is not None and named not in ("", str(home))
    passed = f"; JAVA_HOME={named} is no Java {packages.JAVA_MAJOR}, and not used" if unused else ""
    return ok(f"{packages.JAVA_MAJOR}, {home}{passed}")


def spark() -> Seen:
    """A Spark for which Hudi's bundle is built."""
    try:
        found = version("pyspark")
    except PackageNotFoundError:
        return wrong("the package pyspark is not installed", f"pip install 'pyspark>={_SPARK}9,<3.6'")
    if not found.startswith(_SPARK):
        return wrong(f"pyspark {found}, and Hudi's bundle is for {_SPARK}x", f"pip install 'pyspark>={_SPARK}9,<3.6'")
    return ok(f"pyspark {found}, {packages.spark_home()}")


def cache() -> Seen:
    """The folder of jars and archive."""
    folder = packages.cache_dir()
    there = next(path for path in (folder, *folder.parents) if path.is_dir())
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".slshudi-"):
            pass
    except OSError as error:
        return wrong(
            f"{folder} cannot be written ({error.strerror}); this process runs as {owners.this_user()}",
            "set SLSHUDI_CACHE to a folder that can be written, on every machine",
        )
    return ok(str(folder) if there == folder else f"{folder} is not there yet: the first use makes it")


def jars(s3: bool) -> Seen:
    """Hudi's jars, or with `s3` those that reach an S3 store."""
    package = packages.S3_PACKAGE if s3 else packages.HUDI_PACKAGE
    found = packages.kept(package)
    if found is None:
        return warning(
            f"{package} is not in {packages.cache_dir()}: the first use fetches it from Maven",
            _PREPARE.format(" --s3" if s3 else ""),
        )
    if not found:
        return wrong(f"{packages.home_of(package)} has no jar", "delete this folder; the next use fetches them anew")
    return ok(str(found[0].parent))


def archive() -> Seen:
    """The class-data archive, which is an optimisation."""
    from airflow_provider_slshudi.spark import runtime

    if not packages.kept(packages.HUDI_PACKAGE):
        return unknown("not looked for: it is made of the jars")
    try:
        found = runtime.archive()
    except RuntimeMissing as error:
        return unknown(f"not looked for: {error}")
    if found is None:
        return warning("there is none, so each step starts some seconds later", _PREPARE.format(""))
    return ok(str(found))


def locale() -> Seen:
    """A locale with UTF-8, by which Java names files."""
    return ok(packages.world()["LC_ALL"])
