"""A driver that stays: a JVM with Hudi's classes loaded that opens, commits, and serves tables for the next task.

The first job that can use one starts it: one per user, machine and `identity`, a digest of all that a job's outcome may
depend on. Clients ask it over a Unix socket that only its user can reach. Nothing begins before the client has read
that it was accepted, has said go, and could be told that this came in time: until then the job may as well run in a
process of its own. From then on a lost connection means that the job's outcome is unknown, and the resident process
ends itself if its client is gone or the deadline has passed (`spark.driver.resident_driver`).
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import IO

from airflow_provider_slshudi import __version__
from airflow_provider_slshudi.handover.messages import Accepted, Ask, Job, Line, Refused
from airflow_provider_slshudi.spark.session import TIME_OVER, DriverSession, other_end, receive, same_user, send
from airflow_provider_slshudi.storage import objectstore, owners
from airflow_provider_slshudi.system.processes import clock, for_children

IDLE = "SLSHUDI_RESIDENT_SECONDS"
"""The variable that says how long an idle resident process stays; 0 means that there is none."""
OWNER = "SLSHUDI_RESIDENT_OWNER"
"""The variable that names the pipeline to which a resident process belongs; without it one is there for all."""
IDLE_SECONDS = 600.0
"""The default: longer than those pauses between batches, and between open and commit, that are worth keeping a JVM."""
HANDSHAKE_SECONDS = 5.0
READY = "slshudi resident process is ready"

_START_SECONDS = 60.0
_GLANCE_SECONDS = 0.5
_FAILURE_SECONDS = 300.0
_DRIVER = str(Path(__file__).parent / "driver" / "resident_driver.py")
_PACKAGE = Path(__file__).parents[1]
# Java, Hadoop, Spark, Python, S3, the log service's client and this package read these; LC_ALL stands for LANG.
_PREFIXES = (
    "ALIBABA_CLOUD_",
    "AWS_",
    "HADOOP_",
    "JAVA_",
    "JDK_",
    "KRB5",
    "LD_",
    "PYSPARK_",
    "PYTHON",
    "SLSHUDI_",
    "SPARK_",
    "XDG_",
)
_NAMES = frozenset(
    {"HOME", "LC_ALL", "PATH", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE", "TMPDIR", "TZ", "_JAVA_OPTIONS"},
)
# A process of another container names processes and files otherwise, reaches other hosts, and counts from another boot.
_NAMESPACES = [Path(f"/proc/self/ns/{name}") for name in ("pid", "mnt", "net", "time")]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Place:
    """The files of the resident process of an identity."""

    folder: Path
    identity: str

    @property
    def socket(self) -> Path:
        """Its socket, whose path the system limits to about a hundred bytes."""
        return self.folder / f"{self.identity[:16]}.sock"

    @property
    def log(self) -> Path:
        """The output of its JVM."""
        return self.socket.with_suffix(".log")

    @property
    def lock(self) -> Path:
        """The lock that its starter holds."""
        return self.socket.with_suffix(".lock")

    @property
    def failed(self) -> Path:
        """Made when a start took too long: on a machine that is so busy, each job would try it first."""
        return self.socket.with_suffix(".failed")


class Resident:
    """The client's side, for one job at a time."""

    def __init__(self) -> None:
        self._connection: socket.socket | None = None
        self._killed = False

    def run(
        self,
        conf: Mapping[str, str],
        environment: Mapping[str, str],
        job: Job,
        seconds: float,
        session: DriverSession,
    ) -> bool:
        """Lets the resident process of these settings and this environment do the work; False if nothing has begun.

        The process gets the job, with its secrets, once it has accepted, and keeps them in memory. A job that has not
        ended after `seconds` ends with its process, and then anything may have happened: the session fails. An audit
        hook that raises OSError at `airflow_provider_slshudi.resident` keeps the work from it.

        Args:
            conf: Spark's settings of the process.
            environment: its variables.
            job: see `handover.messages`.
            seconds: see above.
            session: hears what the process tells.
        """
        deadline, verb = clock() + seconds, job.verb.value
        try:
            sys.audit("airflow_provider_slshudi.resident", verb)
            place = Place(owners.private_folder(), identity(conf, environment))
            try:
                connection, accepted = self._accepted(place, conf, environment, deadline)
            except ConnectionError:
                # That process was about to end: ask a new one.
                connection, accepted = self._accepted(place, conf, environment, deadline)
        except (OSError, ValueError) as error:
            _log.info("no resident process (%s), so the job has one of its own", error)
            return False
        with connection, connection.makefile("rb") as answers:
            self._connection = connection
            try:
                # The process ends itself at the deadline; if it cannot, this ends it a little later.
                connection.settimeout(min(_left(deadline), _START_SECONDS))
                try:
                    send(connection, job)
                    receive(answers)
                except ConnectionError as error:
                    if self._killed:
                        session.lose(f"the {verb} was ended before it began")
                        return True
                    # It begins nothing before it has answered, and may serve another task by now.
                    _log.info("the resident process did not wait (%s), so the job has one of its own", error)
                    return False
                session.hear(Line(f"slshudi {verb}: by resident process {accepted.pid}"))
                _follow(connection, answers, deadline, session)
            except (OSError, ValueError) as error:
                # It may stand still and wake when no task expects it, or have lost its interpreter and not its JVM.
                _end(accepted.group, place)
                over = TIME_OVER if clock() >= deadline else ""
                session.lose(f"the resident process did not say how the {verb} ended{over}: {error}")
            finally:
                self._connection = None
        return True

    def kill(self) -> None:
        """Ends the running job, if there is one: its process ends itself once no task listens."""
        self._killed, connection = True, self._connection
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accepted(
        self, place: Place, conf: Mapping[str, str], environment: Mapping[str, str], deadline: float
    ) -> tuple[socket.socket, Accepted]:
        """A connection that waits for our work.

        Raises:
            OSError, ValueError: there is no resident process, it is busy, or it refuses.
        """
        connection = self._reach(place, conf, environment)
        try:
            send(connection, Ask(place.identity, deadline))
            with connection.makefile("rb", buffering=0) as answers:
                answer = receive(answers)
            if not isinstance(answer, Accepted):
                raise PermissionError(f"it refuses: {answer.why if isinstance(answer, Refused) else answer}")
        except BaseException:
            connection.close()
            raise
        return connection, answer

    def _reach(self, place: Place, conf: Mapping[str, str], environment: Mapping[str, str]) -> socket.socket:
        with suppress(FileNotFoundError, ConnectionRefusedError):
            return _connect(place)
        _require_no_failure(place)
        with _starting(place):
            with suppress(FileNotFoundError, ConnectionRefusedError):
                return _connect(place)
            _require_no_failure(place)
            _start(place, conf, environment)
            return _connect(place)


def end_stopped() -> None:
    """Ends this user's resident processes that stand still on this machine: once awake, such a process would go on with
    its job behind the back of the run that decides now.
    """
    with suppress(OSError):
        for path in owners.private_folder().glob("*.sock"):
            with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(HANDSHAKE_SECONDS)
                connection.connect(str(path))
                process, _, _ = other_end(connection)
                if _stands_still(process):
                    _log.warning("resident process %d stands still and is ended", process)
                    os.killpg(os.getpgid(process), signal.SIGKILL)


def idle_seconds(environ: Mapping[str, str]) -> float:
    """How long an idle resident process stays; 0 if there must be none."""
    try:
        return max(0.0, float(environ.get(IDLE) or IDLE_SECONDS))
    except ValueError:
        _log.warning("%s=%s is no number of seconds: there is no resident process", IDLE, environ[IDLE])
        return 0.0


def identity(conf: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """A digest of all that a job's outcome may depend on: package, settings, environment, the user's rights."""
    files = [*_stamps(_PACKAGE.rglob("*.py")), *_stamps(_settings(environment))]
    chosen = {
        name: value
        for name, value in environment.items()
        if name in _NAMES or name.startswith(_PREFIXES) or name.lower().endswith("_proxy")
    }
    # Who reads a table in OSS sets these by itself.
    for name in objectstore.CHECKSUMS:
        chosen.pop(name, None)
    rights = [os.geteuid(), os.getegid(), sorted(os.getgroups()), owners.umask()]
    where = [str(path.readlink()) for path in _NAMESPACES if path.is_symlink()]
    parts = [__version__, files, rights, where, sorted(conf.items()), sorted(chosen.items())]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _settings(environment: Mapping[str, str]) -> Iterator[Path]:
    """Files that Hadoop's, Spark's and S3's clients read once."""
    home = environment.get("SPARK_HOME", "")
    folders = [environment.get("HADOOP_CONF_DIR"), environment.get("SPARK_CONF_DIR") or (home and f"{home}/conf")]
    for folder in filter(None, folders):
        yield from Path(folder).glob("*")
    yield from (Path(environment.get("HOME") or "/") / ".aws").glob("*")


def _stamps(paths: Iterable[Path]) -> list[tuple[str, int, int]]:
    """Files with their times and sizes, which change with their contents."""
    stamps = []
    for path in paths:
        with suppress(OSError):
            stat = path.stat()
            stamps.append((str(path), stat.st_mtime_ns, stat.st_size))
    return sorted(stamps)


def _stands_still(process: int) -> bool:
    stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    return stat.rpartition(")")[2].split()[0] in ("T", "t")


def _connect(place: Place) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(HANDSHAKE_SECONDS)
        connection.connect(str(place.socket))
        if not same_user(connection):
            raise PermissionError(f"{place.socket} is another user's")
    except BaseException:
        connection.close()
        raise
    return connection


def _left(deadline: float) -> float:
    """Seconds to wait for what a resident process says next; some where its time is over: it may have said it."""
    return max(deadline - clock() + HANDSHAKE_SECONDS, _GLANCE_SECONDS)


def _end(group: int, place: Place) -> None:
    """Ends the processes of a place; not a group that has its number by now."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.getpgid(int(process.name)) == group and place.identity.encode() in (process / "cmdline").read_bytes():
                os.killpg(group, signal.SIGKILL)
                return


def _follow(connection: socket.socket, answers: io.IOBase, deadline: float, session: DriverSession) -> None:
    """Hears the process until it closes the connection: before that, tasks of a job that failed may write."""
    while True:
        connection.settimeout(_left(deadline))
        try:
            session.hear(receive(answers))
        except ConnectionError:
            if not session.done and session.failed is None:
                raise
            return


def _require_no_failure(place: Place) -> None:
    """Raises OSError if the last start failed a moment ago."""
    with suppress(FileNotFoundError):
        if 0 <= time.time() - place.failed.stat().st_mtime < _FAILURE_SECONDS:
            raise OSError(f"it could not be started a moment ago; see {place.log}")


@contextmanager
def _starting(place: Place) -> Iterator[None]:
    """Holds the right to start; waits for another starter, but no longer than `_START_SECONDS`."""
    deadline = time.monotonic() + _START_SECONDS
    with place.lock.open("wb") as lock:
        while True:
            try:
                flock(lock, LOCK_EX | LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        yield


def _start(place: Place, conf: Mapping[str, str], environment: Mapping[str, str]) -> None:
    """Starts the process, in a session of its own and not as our child, and waits until it serves.

    Raises:
        OSError: the process did not begin to serve.
    """
    master = conf.get("spark.master", "local[2]")
    command = [str(Path(environment["SPARK_HOME"]) / "bin" / "spark-submit"), "--master", master]
    command += ["--name", "slshudi resident"]
    for key, value in conf.items():
        command += ["--conf", f"{key}={value}"]
    command += [_DRIVER, str(place.socket), place.identity, str(idle_seconds(environment)), master]
    with place.log.open("wb") as log:
        starter = subprocess.Popen(
            ["/bin/sh", "-c", '"$@" &', "sh", *command],
            env=for_children(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    with starter:
        if not _says_ready(starter.stdout, time.monotonic() + _START_SECONDS):
            with suppress(OSError):
                os.killpg(starter.pid, signal.SIGKILL)
            place.failed.touch()
            raise OSError(f"it did not start; see {place.log}")
    place.failed.unlink(missing_ok=True)


def _says_ready(stream: IO[bytes] | None, deadline: float) -> bool:
    said = b""
    while stream is not None and (seconds := deadline - time.monotonic()) > 0:
        if select.select([stream], [], [], seconds)[0]:
            piece = os.read(stream.fileno(), 65536)
            said += piece
            if READY.encode() in said or not piece:
                return bool(piece)
    return False
