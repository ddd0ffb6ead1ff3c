"""What a cluster's executors need: the Python and the code of the driver, installed there or in an archive.

The archive (https://spark.apache.org/docs/3.5.9/api/python/user_guide/python_packaging.html) holds this package with
all that tasks import, so executors need nothing but a Python of the same version.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.metadata
import io
import json
import os
import platform
import re
import socket
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

from airflow_provider_slshudi.config.values import is_archive
from airflow_provider_slshudi.exceptions import ConfigError, ExecutorUnfit, RuntimeMissing
from airflow_provider_slshudi.system.processes import for_children

PACKAGE = Path(__file__).parents[1]
FOLDER = "slshudi"
"""The archive's folder within an executor's own."""
EXPECTED = "SLSHUDI_EXPECTED"
"""The variable that tells executors what the driver has."""
DISTRIBUTIONS = (
    "annotated-types",
    "certifi",
    "fastavro",
    "googleapis-common-protos",
    "numpy",
    "protobuf",
    "ptars",
    "pyarrow",
    "pydantic",
    "pydantic-core",
    "pyyaml",
    "sqlglot",
    "typing-extensions",
    "typing-inspection",
    "urllib3",
)
"""What drivers in cluster mode and tasks import, by its name on the package index."""
OPTIONAL = ("hdfs-native", "slshudi-native")
# What no module imports: tests, and what compilers want.
_LEFT_OUT_FOLDERS = {"tests", "include", "__pycache__"}
_LEFT_OUT_SUFFIXES = {".h", ".hpp", ".c", ".pxd", ".pxi", ".pyx", ".pyc"}
_COMPRESSION = 6
_TOLD = "slshudi.json"
"""The archive's first file: what its maker had."""
# How Spark and Python say what an executor lacks, and of which task.
_NO_PACKAGE = re.compile(r"(?:No module named|module specification for) '?airflow_provider_slshudi")
_NO_PYTHON = re.compile(r'Cannot run program "([^"]+)"[^:\n]*: ([^\n]+)')
_OLD_PYTHON = re.compile(r'File "[^"\n]*airflow_provider_slshudi/[^"\n]*", line \d+\n(?:.*\n){0,4}?\s*SyntaxError')
_TASK = re.compile(r"\(TID \d+\) \((\S+) executor")


def facts(spark: str) -> dict[str, str]:
    """What must be the same in driver and executors; `spark` is PySpark's version.

    The text is free of what YARN's shells would take for their own: quotes, spaces, dollars.
    """
    return {
        "Python": f"{sys.implementation.name}-{sys.version_info.major}.{sys.version_info.minor}",
        "PySpark": spark,
        "airflow_provider_slshudi": _code(),
    }


def told(known: Mapping[str, str]) -> str:
    """Facts as the value of the variable `EXPECTED`."""
    return ",".join(f"{name}={text}" for name, text in known.items())


@cache
def _code() -> str:
    """A digest of this package's code: the version's number stays the same while a developer works on it."""
    digest = hashlib.sha256()
    for path in _files():
        digest.update(f"{path.relative_to(PACKAGE)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def conf(archive: str | None, spark: str) -> dict[str, str]:
    """Spark settings for a cluster whose executors take the package from an archive, or have it installed.

    Raises:
        ConfigError: the archive is a file of this machine, and is not there.
    """
    settings = {f"spark.executorEnv.{EXPECTED}": told(facts(spark))}
    if archive is None:
        return settings
    place = urlsplit(archive)
    if place.scheme in ("", "file") and not Path(place.path).is_file():
        raise ConfigError(
            f"spark.archive: there is no file {place.path}; make it with `slshudi pack {place.path}`",
            source="pipeline",
            field="spark.archive",
            value=archive,
        )
    return {
        **settings,
        "spark.archives": f"{archive}#{FOLDER}",
        # Relative to an executor's own folder, where Spark unpacks archives.
        "spark.executorEnv.PYTHONPATH": FOLDER,
        "spark.pyspark.python": f"python{sys.version_info.major}.{sys.version_info.minor}",
    }


def require_fit(environ: Mapping[str, str], spark: str) -> None:
    """Checks an executor's Python, before it has read anything.

    Raises:
        ExecutorUnfit: it differs from the driver's.
    """
    expected = dict(item.split("=", 1) for item in environ[EXPECTED].split(","))
    if differ := differences(facts(spark), expected):
        raise unfit(differ)


def differences(found: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    """What differs from the facts that are wanted, in words; empty where nothing does."""
    differ = [(name, found.get(name), text) for name, text in wanted.items() if found.get(name) != text]
    return "; ".join(f"{name} {has} and not {text}" for name, has, text in differ)


def unfit(why: str) -> ExecutorUnfit:
    """The error of an executor on this machine."""
    libc = " ".join(platform.libc_ver()) or "unknown libc"
    return _unfit(socket.gethostname(), f"{sys.executable} ({platform.machine()}, {libc}): {why}")


def _unfit(host: str, why: str) -> ExecutorUnfit:
    return ExecutorUnfit(
        f"an executor on {host} cannot run this package: {why}. Nothing was read. Install the driver's Python and "
        "airflow-provider-slshudi there, or make an archive on a machine of that kind (`slshudi pack FILE`) and name "
        "it in spark.archive of the pipeline's file",
        host=host,
    )


def pack(target: Path) -> tuple[int, list[str]]:
    """Writes the archive for executors with this Python and machine; returns its bytes, and what it holds.

    The file appears whole, and replaces another one.

    Raises:
        RuntimeMissing: a distribution that tasks need is not installed here.
        ConfigError: the file cannot be written.
    """
    # Not above: executors load this module, and need nothing of that one.
    from airflow_provider_slshudi.spark.packages import spark_home, spark_version

    distribution = _of_drivers()
    if not is_archive(str(target.absolute())) or target.is_dir():
        raise ConfigError(
            f"{target} cannot be the archive's name: Spark takes it for an address, so it ends in .tar.gz, and has no "
            "space and no , # ? %",
            source=str(target),
        )
    held = [f"airflow-provider-slshudi {importlib.metadata.version('airflow-provider-slshudi')}"]
    files = [(path, f"{PACKAGE.name}/{path.relative_to(PACKAGE)}") for path in _files()]
    for name in (*DISTRIBUTIONS, *OPTIONAL):
        try:
            installed = distribution(name)
        except importlib.metadata.PackageNotFoundError:
            if name in OPTIONAL:
                continue
            raise RuntimeMissing(f"{name} is not installed here, and executors need it") from None
        modules = list(_of(installed))
        if not any(path.suffix in (".py", ".so") for path, _ in modules):
            if name in OPTIONAL:
                continue
            raise RuntimeMissing(
                f"{name} is installed here in a way that does not tell its files (by the system's packages, or for "
                "development): install it with pip, in a virtual environment, and pack there"
            )
        held.append(f"{name} {installed.version}")
        files += modules
    unfinished = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        try:
            with (
                unfinished.open("xb") as raw,
                gzip.GzipFile("", "wb", _COMPRESSION, raw, mtime=0) as packed,
                # Some installers make links into a cache of their own.
                tarfile.open(fileobj=packed, mode="w", dereference=True) as archive,
            ):
                description = json.dumps(facts(spark_version(spark_home()))).encode()
                entry = tarfile.TarInfo(_TOLD)
                entry.size = len(description)
                archive.addfile(entry, io.BytesIO(description))
                for path, name in files:
                    # Not `add`, which makes links of files that are the same one.
                    entry = _plain(archive.gettarinfo(path, name))
                    entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", path.stat().st_size
                    with path.open("rb") as content:
                        archive.addfile(entry, content)
            unfinished.rename(target)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error}", source=str(target)) from error
    return target.stat().st_size, held


def packed(archive: Path) -> dict[str, str]:
    """What an archive's maker had, as `facts` names it. Raises OSError and ValueError: it is none of `pack`'s."""
    try:
        with tarfile.open(archive) as content:
            first = content.next()
            file = content.extractfile(first) if first is not None and first.name == _TOLD else None
            if file is None:
                raise ValueError("it does not begin as `slshudi pack` makes it")
            return dict(json.loads(file.read()))
    except tarfile.TarError as error:
        raise ValueError(str(error)) from error


def _of_drivers() -> Callable[[str], importlib.metadata.Distribution]:
    """Finds distributions where drivers have them.

    Raises:
        RuntimeMissing: drivers run with an interpreter that does not answer, or is of another version.
    """
    from airflow_provider_slshudi.spark.packages import PYTHON, python

    if python() == sys.executable:
        return importlib.metadata.distribution
    code = "import json, sys; print(json.dumps([list(sys.version_info[:2]), sys.path]))"
    try:
        answer = subprocess.run(
            [python(), "-c", code], env=for_children(os.environ), capture_output=True, text=True, check=True
        ).stdout
        # Before it, what a site's own start of that Python says.
        version, paths = json.loads(answer.splitlines()[-1])
    except (OSError, subprocess.CalledProcessError, ValueError, IndexError) as error:
        raise RuntimeMissing(f"{PYTHON}={python()} does not run: {error}") from error
    if version != [*sys.version_info[:2]]:
        raise RuntimeMissing(f"{PYTHON}={python()} is Python {version[0]}.{version[1]}, and Airflow's is another")

    def distribution(name: str) -> importlib.metadata.Distribution:
        for candidate in importlib.metadata.distributions(name=name, path=paths):
            return candidate
        raise importlib.metadata.PackageNotFoundError(name)

    return distribution


def _files() -> list[Path]:
    """This package's own files, as they are installed."""
    return sorted(path for path in PACKAGE.rglob("*") if path.is_file() and _is_of_use(path.relative_to(PACKAGE)))


def _of(found: importlib.metadata.Distribution) -> Iterator[tuple[Path, str]]:
    for file in found.files or ():
        path = Path(str(found.locate_file(file)))
        # Commands lie outside of the folder with the modules.
        if ".." not in file.parts and _is_of_use(Path(*file.parts)) and path.is_file():
            yield path, str(file)


def _is_of_use(path: Path) -> bool:
    fitting_suffix = path.suffix not in _LEFT_OUT_SUFFIXES or path.name.endswith(tuple(EXTENSION_SUFFIXES))
    return fitting_suffix and not _LEFT_OUT_FOLDERS & {*path.parts[:-1]}


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """The same content gives the same archive, on each machine."""
    entry.mtime = entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.mode & 0o100 else 0o644
    return entry


def lacking(text: str) -> ExecutorUnfit | None:
    """The error of an executor that has no such Python, or not this package, out of Spark's text; None if it has."""
    program, task = _NO_PYTHON.search(text), _TASK.search(text)
    if program is not None:
        why = f"{program[1]} cannot be started ({program[2].strip()}); spark.pyspark.python in spark.conf names another"
    elif _NO_PACKAGE.search(text):
        why = "its Python has no airflow_provider_slshudi"
    elif _OLD_PYTHON.search(text):
        why = f"its Python is older than {sys.version_info.major}.{sys.version_info.minor}, the driver's"
    else:
        return None
    return _unfit(task[1] if task else "an unknown host", why)
