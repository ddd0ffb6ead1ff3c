"""How a job reaches spark-submit: the part that all ways of submitting share, and the plain way, a child process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from airflow_provider_slshudi.handover.job_order import JobOrder, Verb, Where
from airflow_provider_slshudi.handover.messages import Job
from airflow_provider_slshudi.spark import python_archive
from airflow_provider_slshudi.spark.packages import spark_home, spark_version
from airflow_provider_slshudi.spark.resident import IDLE, OWNER, Resident, end_stopped, idle_seconds
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
from airflow_provider_slshudi.spark.session import DriverSession, offered
from airflow_provider_slshudi.storage.objectstore import is_stored
from airflow_provider_slshudi.system.processes import clock, ends_with_parent, for_children

APPLICATION = str(Path(__file__).parent / "driver" / "__main__.py")
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
_ONE_ATTEMPT = re.compile(r"local(\[(\d+|\*)\])?")
"""Masters that try a task once (spark.apache.org/docs/3.5.9/submitting-applications.html#master-urls)."""
_FOLLOWING_SECONDS = 60.0
"""How long a resident process of a pipeline's own waits for the batch that follows."""


class Launcher(Protocol):
    """Runs a job to its end."""

    def run(self, verb: Verb, order: JobOrder, secrets: Mapping[str, str]) -> float | None:
        """Runs the job and waits for it; returns the CPU seconds of its driver, None where they are not told.

        Args:
            verb: what the job does.
            order: what it works on.
            secrets: the log service's connection, by the names of variables; the driver gets them in its message.

        Raises:
            JobFailed: the job failed.
        """


@dataclass(frozen=True)
class Submission:
    """The name, settings and environment of a spark-submit."""

    name: str
    conf: dict[str, str]
    environment: dict[str, str]


def submission(verb: Verb, order: JobOrder, master: str, cluster: bool = False) -> Submission:
    """The submission of a verb under a master.

    Args:
        verb: what the driver does.
        order: its order.
        master: Spark's.
        cluster: whether it is in cluster mode.
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
        return Submission(job_name(verb, order), conf, environment() | LOCAL_ENVIRONMENT)
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
    return Submission(job_name(verb, order), conf, environment() | here)


def stays(verb: Verb, order: JobOrder, master: str) -> bool:
    """Whether a resident process can do a job as well as a driver of its own under `master`.

    It can append a small batch under a local master, where that is Python's work alone and no settings are given; and
    one of its own can append large ones that follow one another. A small upsert of a Copy-On-Write table may write
    gigabytes.
    """
    if verb is not Verb.APPEND:
        return not verb.is_distributed
    pipeline = order.described
    fits = _is_small(order) or (_has_own(order) and _ONE_ATTEMPT.fullmatch(master) is not None)
    rewrites = pipeline.table.upsert is not None and pipeline.table.type == "copy_on_write"
    return fits and not rewrites and master.startswith("local") and not pipeline.checks and not pipeline.spark.conf


def _is_small(order: JobOrder) -> bool:
    most = RESIDENT_APPEND_BYTES if order.described.table.upsert is None else RESIDENT_UPSERT_BYTES
    return order.size is not None and order.size <= most


def _has_own(order: JobOrder) -> bool:
    """Whether it has a resident process of its pipeline's own, since it would hold up others' jobs for long."""
    return order.drains and order.described.table.upsert is None and not _is_small(order)


def job_name(verb: Verb, order: JobOrder) -> str:
    """The job's name in Spark, and in errors."""
    return f"slshudi {verb.value} {order.described.name} {order.instant or order.transaction}".strip()


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
        job = Job(verb, order, dict(secrets))
        session = DriverSession(job_name(verb, order), verb, self._say)
        if self.by_resident(job, master, session):
            return session.require_done()
        return self._by_child(job, master, session)

    def by_resident(self, job: Job, master: str, session: DriverSession) -> bool:
        """Whether a resident process took the work, under a session that says how it ended; False: nothing has begun.

        Args:
            job: see `handover.messages`.
            master: Spark's.
            session: hears what the process tells.
        """
        verb, order = job.verb, job.order
        if verb is Verb.COMMIT or order.until:
            end_stopped()
        if self._resident is None or not stays(verb, order, master) or not idle_seconds(os.environ):
            return False
        submitted = submission(verb, order, RESIDENT)
        variables = for_children(os.environ) | submitted.environment
        if verb is Verb.APPEND and _has_own(order):
            submitted.conf["spark.master"] = master
            idle = min(_FOLLOWING_SECONDS, idle_seconds(os.environ))
            variables |= {OWNER: order.described.name, IDLE: str(idle)}
        longest = RESIDENT_APPEND_SECONDS if verb is Verb.APPEND else RESIDENT_JOB_SECONDS
        seconds = order.until - clock() if order.until else longest
        return self._resident.run(submitted.conf, variables, job, seconds, session)

    def _by_child(self, job: Job, master: str, session: DriverSession) -> float | None:
        submitted, until = submission(job.verb, job.order, master), job.order.until
        command = [str(Path(submitted.environment["SPARK_HOME"]) / "bin" / "spark-submit"), "--master", master]
        command += ["--name", submitted.name]
        for key, value in submitted.conf.items():
            command += ["--conf", f"{key}={value}"]
        with (
            offered(job, session) as task,
            subprocess.Popen(
                [*command, APPLICATION, str(task)],
                env=for_children(os.environ) | submitted.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
                preexec_fn=ends_with_parent(signal.SIGKILL, until or None),
            ) as child,
        ):
            self._child = child
            try:
                with _ended_at(child.pid, until):
                    for line in child.stdout or ():
                        session.remember(line.rstrip())
                        self._say(line.rstrip())
            except BaseException:
                # A task's time may be over: without this the error waits for the driver.
                _kill_group(child.pid)
                raise
        self._child = None
        return session.require_done(child.returncode, timed_out=bool(child.returncode) and 0 < until < clock())

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
