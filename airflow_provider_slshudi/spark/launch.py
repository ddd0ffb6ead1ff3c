"""How a job reaches spark-submit: the part that all ways of submitting share, and the plain way, a child process."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import JobDenied, JobFailed, TableDenied
from airflow_provider_slshudi.handover.cluster import FILE
from airflow_provider_slshudi.handover.job_order import REASON, JobOrder, Verb, Where, cpu_told
from airflow_provider_slshudi.spark import python_archive
from airflow_provider_slshudi.spark.packages import spark_home, spark_version
from airflow_provider_slshudi.spark.resident import Outcome, Resident, end_stopped, idle_seconds
from airflow_provider_slshudi.spark.runtime import (
    LOCAL_CONF,
    LOCAL_ENVIRONMENT,
    cluster_conf,
    control_conf,
    environment,
    in_cluster,
    session_conf,
    with_asked,
)
from airflow_provider_slshudi.storage.objectstore import is_stored
from airflow_provider_slshudi.system.points import stops_drivers
from airflow_provider_slshudi.system.processes import clock, ends_with_parent, for_children

APPLICATION = str(Path(__file__).parent / "driver" / "__main__.py")
TAIL_LINES = 40
RESIDENT = "resident"
"""In the place of a master: the settings of a resident process, which are the same for all that it does."""
# A driver's own timer has this long to work before its launcher ends it: far less than the lease outlasts its time.
TIMER_SECONDS = 1.0
_GLANCE_SECONDS = 1.0
# A resident process ends a job that has no time limit of its own after this long. An append that a slow service holds
# up would be begun again and again.
RESIDENT_JOB_SECONDS = 900.0
RESIDENT_APPEND_SECONDS = 86_400.0
RESIDENT_APPEND_BYTES = 512 << 20
"""Raw bytes of the largest batch that a resident process appends: others wait while it is busy (decision 0036)."""
RESIDENT_UPSERT_BYTES = 64 << 20
"""The same of a table with upserts: each task holds its bucket's rows."""
# SIGKILL and SIGTERM: first as the kernel reports them of a child, then as a shell or Java does.
_KILLED = (-9, -15, 137, 143)


class Launcher(Protocol):
    """Runs a job to its end. `secrets` travel in the driver's environment."""

    def run(self, verb: Verb, order: JobOrder, secrets: Mapping[str, str]) -> float | None:
        """Runs the job and waits for it; raises JobFailed if it fails.

        Returns the CPU seconds of its driver, JVM and Python; None if it did not tell.
        """


@dataclass(frozen=True)
class Submission:
    """The arguments of spark-submit, without the master, and without the order, which is its standard input."""

    name: str
    conf: dict[str, str]
    arguments: list[str]
    environment: dict[str, str]


def submission(verb: Verb, order: JobOrder, master: str, cluster: bool = False) -> Submission:
    """The submission of a verb under a master; `cluster`: in cluster mode, where the order is asked for.

    Args:
        verb: what the driver does.
        order: its order.
        master: Spark's.
        cluster: see above.
    """
    pipeline = order.described
    # The quarantine's too where nothing goes there at the moment: an instant of before may have a part in it.
    store = next(filter(is_stored, (*pipeline.table_paths, pipeline.quarantine_path)), "")
    # A verb whose executors read the table's files by Spark needs Hudi's and the file system's jars there.
    # So does a driver that runs elsewhere.
    reads = verb.where is Where.SESSION or (verb is Verb.APPEND and bool(pipeline.checks)) or cluster
    conf = session_conf(master, store) if reads else control_conf(store)
    if master == RESIDENT:
        # It outlives its jobs: a second attempt of a stage or task may write files after the commit.
        conf |= {"spark.speculation": "false", "spark.stage.maxConsecutiveAttempts": "1"}
        return Submission(_name(verb, order, pipeline), conf, [verb.value], environment() | LOCAL_ENVIRONMENT)
    if verb is Verb.APPEND and not reads:
        # Executors run Python alone: they need neither Hudi's jars nor its class for their serializer.
        for key in ("spark.serializer", "spark.kryo.registrator", "spark.sql.extensions"):
            conf.pop(key, None)
        if not master.startswith("local"):
            for key in LOCAL_CONF:
                conf.pop(key, None)
            conf |= cluster_conf(master)
    if verb.is_distributed and not master.startswith("local"):
        conf |= python_archive.conf(pipeline.spark.archive, spark_version(spark_home()))
    if cluster:
        conf = in_cluster(master, conf)
    if verb.is_distributed:
        # A second attempt beside a running one would write files that the commit may not see in time to delete.
        conf = with_asked(conf, pipeline.spark.conf) | {"spark.speculation": "false"}
    here = LOCAL_ENVIRONMENT if master.startswith("local") else {}
    arguments = [verb.value, FILE] if cluster else [verb.value]
    return Submission(_name(verb, order, pipeline), conf, arguments, environment() | here)


def stays(verb: Verb, order: JobOrder, master: str) -> bool:
    """Whether a resident process can do a job as well as a driver of its own under `master`.

    It can append a small batch under a local master, where that is Python's work alone and no settings are given.
    A small upsert of a Copy-On-Write table may write gigabytes.
    """
    if verb is not Verb.APPEND:
        return not verb.is_distributed
    pipeline = order.described
    most = RESIDENT_APPEND_BYTES if pipeline.table.upsert is None else RESIDENT_UPSERT_BYTES
    small = order.size is not None and order.size <= most
    rewrites = pipeline.table.upsert is not None and pipeline.table.type == "copy_on_write"
    return small and not rewrites and master.startswith("local") and not pipeline.checks and not pipeline.spark.conf


def _name(verb: Verb, order: JobOrder, pipeline: Pipeline) -> str:
    return f"slshudi {verb.value} {pipeline.name} {order.instant or order.transaction}".strip()


class SubprocessLauncher:
    """Runs spark-submit as a child process, without Airflow.

    Args:
        master: the master of distributed verbs.
        say: takes each line that the job prints.
        resident: whether a process that stays may run the job (see `spark.resident`).
    """

    def __init__(
        self, master: str = "local[2]", say: Callable[[str], None] | None = None, resident: bool = False
    ) -> None:
        self._master = master
        self._say = say or (lambda line: None)
        self._child: subprocess.Popen[str] | None = None
        self._resident = Resident() if resident else None

    def run(self, verb: Verb, order: JobOrder, secrets: Mapping[str, str]) -> float | None:
        """Runs the job and waits for it; returns and raises as `Launcher.run`."""
        master = self._master if verb.is_distributed else "local[2]"
        tail: deque[str] = deque(maxlen=TAIL_LINES)
        if not self.by_resident(verb, order, master, secrets, tail):
            self._by_child(submission(verb, order, master), order, master, secrets, tail)
        return cpu_told(tail)

    def by_resident(
        self, verb: Verb, order: JobOrder, master: str, secrets: Mapping[str, str], tail: deque[str]
    ) -> bool:
        """Whether a resident process ran the job, whose last lines go to `tail`; False if nothing has begun.

        Raises JobFailed if the job failed.

        Args:
            verb: what the job does.
            order: its order.
            master: Spark's.
            secrets: variables that the process gets once it has accepted.
            tail: gets the last lines.
        """
        if verb is Verb.COMMIT or order.until:
            end_stopped()
        stops = stops_drivers(os.environ) or stops_drivers(secrets)
        fits = stays(verb, order, master) and not stops and idle_seconds(os.environ) > 0
        if self._resident is None or not fits:
            return False
        job = submission(verb, order, RESIDENT)

        def heard(line: str) -> None:
            tail.append(line)
            self._tell(line)

        longest = RESIDENT_APPEND_SECONDS if verb is Verb.APPEND else RESIDENT_JOB_SECONDS
        seconds = order.until - clock() if order.until else longest
        variables = for_children(os.environ) | job.environment
        outcome = self._resident.run(job.conf, variables, verb, order, secrets, seconds, heard)
        if outcome in (Outcome.FAILED, Outcome.UNKNOWN):
            raise job_failed(job.name, verb, 1 if outcome is Outcome.FAILED else None, tail)
        return outcome is Outcome.DONE

    def _by_child(
        self, made: Submission, order: JobOrder, master: str, secrets: Mapping[str, str], tail: deque[str]
    ) -> None:
        command = ["spark-submit", "--master", master, "--name", made.name]
        for key, value in made.conf.items():
            command += ["--conf", f"{key}={value}"]
        variables = {**for_children(os.environ), **made.environment, **secrets}
        command[0] = str(Path(made.environment["SPARK_HOME"]) / "bin" / "spark-submit")
        with (
            order.as_input() as order_input,
            subprocess.Popen(
                [*command, APPLICATION, *made.arguments],
                env=variables,
                stdin=order_input,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
                preexec_fn=ends_with_parent(signal.SIGKILL, order.until or None),
            ) as child,
        ):
            self._child = child
            try:
                with _ended_at(child.pid, order.until):
                    for line in child.stdout or ():
                        tail.append(line.rstrip())
                        self._tell(line.rstrip())
            except BaseException:
                # A task's time may be over: without this the error waits for the driver.
                _kill_group(child.pid)
                raise
        self._child = None
        if child.returncode:
            timed_out = 0 < order.until < clock()
            raise job_failed(made.name, Verb(made.arguments[0]), child.returncode, tail, timed_out)

    def _tell(self, line: str) -> None:
        # The reason becomes the error's text.
        if not line.startswith(REASON):
            self._say(line)

    def kill(self) -> None:
        """Ends the running driver, if there is one, with all that it started."""
        if self._resident is not None:
            self._resident.kill()
        if self._child is not None:
            _kill_group(self._child.pid)


@contextmanager
def _ended_at(leader: int, until: float) -> Iterator[None]:
    """Ends a driver that stands still when its time is over: its own timer only works once it wakes.

    Otherwise the wait for the driver, and the lease of the run that waits, would have no end. It looks at the clock
    again and again, since a wait does not count the time that the machine sleeps.
    """
    if not until:
        yield
        return
    over = threading.Event()

    def watch() -> None:
        while not over.wait(min(_GLANCE_SECONDS, max(0.0, until + TIMER_SECONDS - clock()))):
            if clock() >= until + TIMER_SECONDS:
                _kill_group(leader)
                return

    threading.Thread(target=watch, name="slshudi-driver-time", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def likely(lines: Iterable[str]) -> str:
    """The most telling line of a job that gave no reason: its last line with an error in it."""
    texts = [" ".join(line.split()) for line in lines if line.strip() and not line.lstrip().startswith("at ")]
    errors = [line for line in texts if "Error" in line or "Exception" in line]
    return (errors or texts or ["it printed nothing"])[-1]


def job_failed(
    name: str, verb: Verb, returncode: int | None, tail: Iterable[str], timed_out: bool = False
) -> JobFailed:
    """The error of a failed job, in one line: the reason that it gave, else its exit code and its most telling line.

    The launcher's log has all that it printed already.

    Args:
        name: of the job, for people.
        verb: what it did.
        returncode: of its process; None: not known.
        tail: the last lines that it printed.
        timed_out: whether its time was over.
    """
    lines = list(tail)
    reason = next((line.removeprefix(REASON) for line in reversed(lines) if line.startswith(REASON)), None)
    ended = f"{name} ended with exit code {'unknown' if returncode is None else returncode}"
    if returncode in _KILLED:
        ended += ", so it was killed"
    if timed_out:
        ended += " because its time was over: another run may decide about it by now"
    said = f"{ended}: {reason or likely(lines)}" if reason or returncode not in _KILLED else ended
    if verb is Verb.APPEND:
        said = said.rstrip(".")
        said += ". Nothing of it is committed; the next run's settle decides it, and its ranges are read again"
    kind = JobDenied if reason and reason.startswith(f"{TableDenied.__name__}: ") else JobFailed
    named = (reason or "").partition(": ")[0]
    error = named if named.isidentifier() else ""
    return kind(said, verb=verb.value, returncode=returncode, tail="\n".join(lines), error=error)
