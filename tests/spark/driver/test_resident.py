"""A driver that stays: who is served by it, and that no job goes on in it unseen."""

from __future__ import annotations

import os
import select
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest
from pyspark.sql import SparkSession

from airflow_provider_slshudi.exceptions import JobFailed, TableError
from airflow_provider_slshudi.handover import batch_files
from airflow_provider_slshudi.handover.batch_files import Attempt, Manifest
from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.handover.messages import Accepted, Ask, Done, Job, Line, Refused, encode
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.instant_metadata import TRANSACTION_KEY
from airflow_provider_slshudi.hudi.layout import Phase
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.spark import resident
from airflow_provider_slshudi.spark.driver import resident_driver as job_resident
from airflow_provider_slshudi.spark.driver import verbs
from airflow_provider_slshudi.spark.launch import RESIDENT, SubprocessLauncher, submission
from airflow_provider_slshudi.spark.resident import Place, Resident
from airflow_provider_slshudi.spark.session import DriverSession, receive, send
from airflow_provider_slshudi.storage import owners
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.system.processes import clock
from tests.pipelines import ad_events
from tests.points import armed_in
from tests.residents import apart, drivers, end, jvm
from tests.waiting import until

pytestmark = pytest.mark.long

CLIENT = """
import sys, time
from airflow_provider_slshudi.spark.launch import SubprocessLauncher
from airflow_provider_slshudi.handover.messages import decode
say = lambda line: print(line, flush=True)
job = decode(sys.argv[1])
SubprocessLauncher(say=say, resident=True).run(job.verb, job.order, {})
print("ended", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where this module's resident processes are found."""
    tmp_path_factory.getbasetemp()  # before it would be made in the folder that goes
    with apart() as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_stands_still(folder: Path) -> Iterator[None]:
    """A test that failed must not leave the next one with a process that never answers."""
    yield
    for process in drivers(folder):
        if process.status() == psutil.STATUS_STOPPED:
            process.kill()


class Told:
    """What a launcher said, and which resident process that was by."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.launcher = SubprocessLauncher(say=self.lines.append, resident=True)

    @property
    def by(self) -> list[int]:
        return [int(line.rpartition(" ")[2]) for line in self.lines if "by resident process" in line]


def opening(table: Path, transaction: str = "t1") -> JobOrder:
    return JobOrder(ad_events(table).model_dump(mode="json"), transaction=transaction, token=1, creates=True)


def prepared(table: Path) -> JobOrder:
    """The order to commit an instant that a resident process opened: an inflight one, without files."""
    SubprocessLauncher(resident=True).run(Verb.OPEN, opening(table), {})
    storage = Storage(f"file://{table}")
    [instant] = Timeline.load(storage).pending()
    storage.write(f".hoodie/timeline/{instant.time}.inflight", b"")
    batch_files.write_manifest(storage, Manifest("t1", 1, instant.time, [], []))
    attempt = Attempt(storage, "t1", instant.time, 1)
    digest = attempt.manifest()[1]
    extra = attempt.leave_extra({TRANSACTION_KEY: "t1"})
    return JobOrder(ad_events(table).model_dump(mode="json"), "t1", 1, instant.time, digest, extra)


def phase(table: Path, order: JobOrder) -> Phase:
    found = Timeline.load(Storage(f"file://{table}")).get(order.instant)
    assert found is not None
    return found.phase


def client(verb: Verb, order: JobOrder) -> subprocess.Popen[str]:
    """A task's process of its own, which goes on after the job."""
    command = [sys.executable, "-c", CLIENT, encode(Job(verb, order))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


def heard(started: subprocess.Popen[str], text: str) -> str:
    """The client's next line with this text."""
    assert started.stdout is not None
    return next(line for line in started.stdout if text in line)


def test_one_process_serves_jobs_of_several_tasks_and_outlives_their_process_groups(
    folder: Path, tmp_path: Path
) -> None:
    first = client(Verb.OPEN, opening(tmp_path / "a"))
    pid = int(heard(first, "by resident process").rpartition(" ")[2])
    heard(first, "ended")
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    told = Told()
    told.launcher.run(Verb.OPEN, opening(tmp_path / "b"), {})
    told.launcher.run(Verb.OPEN, opening(tmp_path / "b", "t2"), {})
    assert told.by == [pid, pid]
    assert [line for line in told.lines if line.startswith("opened instant") and "transaction t2" in line]
    assert len(Timeline.load(Storage(f"file://{tmp_path / 'b'}")).pending()) == 2


def test_each_job_tells_what_the_process_took_since_the_one_before(folder: Path, tmp_path: Path) -> None:
    end(drivers(folder))
    until("no resident process is left", lambda: not drivers(folder))
    launcher = SubprocessLauncher(resident=True)
    first = launcher.run(Verb.OPEN, opening(tmp_path / "a"), {})
    second = launcher.run(Verb.OPEN, opening(tmp_path / "b"), {})
    assert first is not None and second is not None and 0 < second < first, "the first pays for the start"
    # The interpreter is one of them; shells and the JVM that tells how to start are over.
    taken = sum(time.user + time.system for time in (process.cpu_times() for process in drivers(folder)))
    assert first + second == pytest.approx(taken, rel=0.2)


def test_nobody_else_reaches_it(folder: Path, tmp_path: Path) -> None:
    Told().launcher.run(Verb.OPEN, opening(tmp_path / "a"), {})
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    [path] = folder.glob("*.sock")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and path.owner() == Path("/proc/self").owner()


def test_a_folder_that_others_can_enter_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"slshudi-{os.geteuid()}").mkdir(mode=0o755)
    with pytest.raises(PermissionError, match="no other user can enter"):
        owners.private_folder()
    lines: list[str] = []
    SubprocessLauncher(say=lines.append, resident=True).run(Verb.OPEN, opening(tmp_path / "table"), {})
    assert not [line for line in lines if "by resident process" in line]
    assert len(Timeline.load(Storage(f"file://{tmp_path / 'table'}")).pending()) == 1


def test_it_commits_and_rolls_back(folder: Path, tmp_path: Path) -> None:
    order, told = prepared(tmp_path / "a"), Told()
    told.launcher.run(Verb.COMMIT, order, {})
    timeline = Timeline.load(Storage(f"file://{tmp_path / 'a'}"))
    [committed] = timeline.completed("commit")
    assert committed.time == order.instant
    assert timeline.extra_metadata(committed)[TRANSACTION_KEY] == "t1"
    dropped = prepared(tmp_path / "b")
    told.launcher.run(Verb.ROLLBACK, dropped, {})
    assert Timeline.load(Storage(f"file://{tmp_path / 'b'}")).get(dropped.instant) is None
    assert len(told.by) == 2


def test_a_job_that_fails_says_why_and_the_next_one_is_served(folder: Path, tmp_path: Path) -> None:
    told, order = Told(), JobOrder(ad_events(tmp_path / "a").model_dump(mode="json"), "t1", 1, "20260101000000000")
    with pytest.raises(JobFailed) as failed:
        told.launcher.run(Verb.COMMIT, order, {})
    assert "slshudi commit ad_events 20260101000000000 failed: ManifestError: " in str(failed.value)
    assert "no manifest for instant 20260101000000000" in str(failed.value) and "\n" not in str(failed.value)
    assert "Traceback" not in failed.value.tail, "the package's own error tells all by itself"
    told.launcher.run(Verb.OPEN, opening(tmp_path / "a"), {})
    assert len(told.by) == 2 and len(set(told.by)) == 1


def test_two_tasks_at_once_are_both_served(folder: Path, tmp_path: Path) -> None:
    told = [Told() for _ in range(4)]

    def run(number: int) -> None:
        told[number].launcher.run(Verb.OPEN, opening(tmp_path / str(number)), {})

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(told))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(len(Timeline.load(Storage(f"file://{tmp_path / str(n)}")).pending()) == 1 for n in range(len(told)))
    assert all(by == told[0].by and len(by) == 1 for by in (item.by for item in told))


def test_another_version_or_environment_is_refused_before_anything_begins(folder: Path, tmp_path: Path) -> None:
    order = opening(tmp_path / "a")
    Told().launcher.run(Verb.OPEN, order, {})
    made = submission(Verb.OPEN, order, RESIDENT)
    environment = {**os.environ, **made.environment}
    here = resident.identity(made.conf, environment)
    assert here == resident.identity(made.conf, {**environment, "AIRFLOW_CTX_TASK_ID": "open"})
    for name in ("AWS_PROFILE", "JAVA_HOME", "HADOOP_CONF_DIR", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "https_proxy"):
        assert here != resident.identity(made.conf, {**environment, name: "/other"}), name
    assert here != resident.identity({**made.conf, "spark.hadoop.fs.s3a.endpoint": "x"}, environment)
    assert Place(folder, here).socket.exists()
    # One that finds the way all the same, to the same socket, is told so.
    with resident._connect(Place(folder, here)) as connection, connection.makefile("rb") as answers:
        send(connection, Ask(f"{here[:16]}-another", clock() + 60))
        assert receive(answers) == Refused("it serves another user, version or environment")


def test_a_test_of_crashes_has_a_driver_of_its_own(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    for name, value in armed_in(tmp_path).items():
        monkeypatch.setenv(name, value)
    (tmp_path / Point.OPEN_OWNED.value).write_text("die")
    with pytest.raises(JobFailed):
        told.launcher.run(Verb.OPEN, opening(tmp_path / "a"), {})
    assert told.by == []


def test_a_test_of_crashes_that_stops_tasks_alone_may_have_one_that_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    for name, value in armed_in(tmp_path).items():
        monkeypatch.setenv(name, value)
    (tmp_path / Point.COMMIT_DECIDED.value).write_text("die")
    with apart():
        told.launcher.run(Verb.OPEN, opening(tmp_path / "a"), {})
    assert told.by


def test_a_commit_ends_with_the_task_that_asked_for_it(folder: Path, tmp_path: Path) -> None:
    order = prepared(tmp_path / "a")
    running = drivers(folder)
    jvm(folder).suspend()  # so that the commit is not over before its client is
    task = client(Verb.COMMIT, order)
    heard(task, "by resident process")
    task.kill()
    task.wait()
    until("the driver ends", lambda: not any(process in drivers(folder) for process in running))
    assert phase(tmp_path / "a", order) is Phase.INFLIGHT
    told = Told()
    told.launcher.run(Verb.COMMIT, order, {})
    assert phase(tmp_path / "a", order) is Phase.COMPLETED
    assert told.by and told.by[0] not in [process.pid for process in running]


def test_a_task_that_is_killed_by_airflow_ends_its_commit(folder: Path, tmp_path: Path) -> None:
    order, told = prepared(tmp_path / "a"), Told()
    running = drivers(folder)
    jvm(folder).suspend()
    failures: list[JobFailed] = []

    def run() -> None:
        with pytest.raises(JobFailed) as failed:
            told.launcher.run(Verb.COMMIT, order, {})
        failures.append(failed.value)

    thread = threading.Thread(target=run)
    thread.start()
    until("the commit is begun", lambda: told.by)
    told.launcher.kill()
    thread.join()
    assert failures[0].returncode is None and "did not say how the commit ended" in str(failures[0])
    until("the driver ends", lambda: not any(process in drivers(folder) for process in running))
    assert phase(tmp_path / "a", order) is Phase.INFLIGHT


def test_whoever_commits_next_ends_one_that_stands_still_and_would_wake_later(folder: Path, tmp_path: Path) -> None:
    order = prepared(tmp_path / "a")
    running = drivers(folder)
    jvm(folder).suspend()
    task = client(Verb.COMMIT, order)
    heard(task, "by resident process")
    for process in running:
        process.suspend()
    task.kill()
    task.wait()
    assert all(process in drivers(folder) for process in running)
    told = Told()
    told.launcher.run(Verb.COMMIT, order, {})
    assert not any(process in drivers(folder) for process in running)
    assert phase(tmp_path / "a", order) is Phase.COMPLETED


def test_a_jvm_that_stands_still_ends_with_its_interpreter(folder: Path, tmp_path: Path) -> None:
    """Nobody else would find it: it is known by its interpreter's socket."""
    told, failures = Told(), list[str]()
    order = prepared(tmp_path / "table")
    java = jvm(folder)
    [interpreter] = [process for process in drivers(folder) if process.name() != "java"]

    def commits() -> None:
        try:
            told.launcher.run(Verb.COMMIT, order, {})
        except JobFailed as error:
            failures.append(str(error))

    java.suspend()
    job = threading.Thread(target=commits)
    job.start()
    until("the commit is begun", lambda: told.by)
    interpreter.kill()
    job.join()
    assert failures and "did not say how the commit ended" in failures[0]
    java.wait(20)
    assert phase(tmp_path / "table", order) is Phase.INFLIGHT


def test_a_job_that_comes_before_the_interpreter_knows_of_its_jvms_death_is_served_by_another_process(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    told.launcher.run(Verb.OPEN, opening(tmp_path / "a"), {})
    java = jvm(folder)
    [interpreter] = [process for process in drivers(folder) if process.name() != "java"]
    interpreter.suspend()
    java.kill()
    java.wait(20)

    def receive_once_it_goes_on(answers: Any) -> Any:
        with suppress(psutil.NoSuchProcess):
            interpreter.resume()
        return receive(answers)

    monkeypatch.setattr(resident, "receive", receive_once_it_goes_on)
    told.launcher.run(Verb.OPEN, opening(tmp_path / "b"), {})
    assert len(set(told.by)) == 2


def test_a_job_that_comes_while_a_killed_jvm_ends_is_done_by_another(folder: Path, tmp_path: Path) -> None:
    told = Told()
    told.launcher.run(Verb.OPEN, opening(tmp_path / "a"), {})
    jvm(folder).kill()
    told.launcher.run(Verb.OPEN, opening(tmp_path / "b"), {})
    assert len(Timeline.load(Storage(f"file://{tmp_path / 'b'}")).pending()) == 1


def test_after_a_start_that_failed_jobs_have_drivers_of_their_own_for_some_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with apart() as place:
        monkeypatch.setattr(resident, "_START_SECONDS", 0.01)
        told = Told()
        told.launcher.run(Verb.OPEN, opening(tmp_path / "first"), {})
        monkeypatch.setattr(resident, "_START_SECONDS", 60.0)
        told.launcher.run(Verb.OPEN, opening(tmp_path / "second"), {})
        assert told.by == [] and drivers(place) == []
        [mark] = place.rglob("*.failed")
        long_ago = time.time() - 301
        os.utime(mark, (long_ago, long_ago))
        told.launcher.run(Verb.OPEN, opening(tmp_path / "third"), {})
        assert len(told.by) == 1 and not mark.exists()


def test_a_client_that_stood_still_past_the_end_hears_what_was_said_in_time() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, ours.makefile("rb") as answers:
        send(theirs, Line("said"))
        lines = list[str]()
        session = DriverSession("a commit", Verb.COMMIT, lines.append)
        with pytest.raises(TimeoutError):
            resident._follow(ours, answers, clock() - 100, session)
    ours, theirs = socket.socketpair()
    with ours, ours.makefile("rb") as answers:
        send(theirs, Line("said"))
        send(theirs, Done())
        theirs.close()
        resident._follow(ours, answers, clock() - 100, session)
    assert session.done and lines == ["said", "said"]


def test_a_group_of_others_that_has_its_number_by_now_is_not_ended(tmp_path: Path) -> None:
    place = Place(tmp_path, "an-identity")
    command = [sys.executable, "-c", "import time; time.sleep(600)"]

    def is_begun(number: int) -> bool:
        return bool(psutil.Process(number).cmdline()[1:2] == ["-c"])

    others, its_own = (subprocess.Popen([*command, *more], start_new_session=True) for more in ([], [place.identity]))
    for process in (others, its_own):
        until("it runs", partial(is_begun, process.pid))
        resident._end(process.pid, place)
    assert its_own.wait(20) == -signal.SIGKILL
    assert others.poll() is None
    others.kill()
    others.wait()


def test_edited_settings_of_hadoop_and_spark_are_another_process(tmp_path: Path) -> None:
    variables = {"HADOOP_CONF_DIR": str(tmp_path)}
    before = resident.identity({}, variables)
    assert resident.identity({}, variables) == before
    (tmp_path / "hdfs-site.xml").write_text("<configuration/>")
    assert resident.identity({}, variables) != before


@pytest.mark.parametrize("whole", [False, True], ids=["its JVM stands still", "all of it stands still"])
def test_a_commit_does_not_outlive_its_deadline(folder: Path, tmp_path: Path, whole: bool) -> None:
    order = prepared(tmp_path / "a")
    made = submission(Verb.COMMIT, order, RESIDENT)
    running, lines = drivers(folder), list[str]()
    java = jvm(folder)
    java.suspend()

    def heard(line: str) -> None:
        lines.append(line)
        for process in running if whole else ():
            process.suspend()

    started = time.monotonic()
    environment = {**os.environ, **made.environment}
    session = DriverSession("a commit", Verb.COMMIT, heard)
    assert Resident().run(made.conf, environment, Job(Verb.COMMIT, order), 3.0, session), "it may have begun"
    assert session.failed is not None and not session.done and time.monotonic() - started < 30
    assert "its time was over" in str(session.failed)
    until("the driver ends", lambda: not any(process in drivers(folder) for process in running))
    assert phase(tmp_path / "a", order) is Phase.INFLIGHT


def test_what_is_too_late_is_not_committed(folder: Path, tmp_path: Path, spark: SparkSession) -> None:
    order = replace(prepared(tmp_path / "a"), until=clock() - 1)
    with pytest.raises(TableError, match="was over"):
        verbs.commit_instant(Gateway.of(spark.sparkContext), order)
    assert phase(tmp_path / "a", order) is Phase.INFLIGHT


def test_it_ends_by_itself_once_idle(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(resident.IDLE, "2")
    others, told = set(drivers(folder)), Told()
    told.launcher.run(Verb.OPEN, opening(tmp_path / "a"), {})
    started = [process for process in drivers(folder) if process not in others]
    assert told.by[0] in [process.pid for process in started] and len(started) == 2
    sockets = len(list(folder.glob("*.sock")))

    def is_over() -> bool:
        # Commits of other identities look at it all the time; that is no use of it.
        resident.end_stopped()
        return not any(process in drivers(folder) for process in started)

    until("the drivers end", is_over)
    assert len(list(folder.glob("*.sock"))) == sockets - 1
    assert resident.idle_seconds({resident.IDLE: "0"}) == 0 == resident.idle_seconds({resident.IDLE: "soon"})


def test_a_task_that_came_too_late_with_its_go_begins_nothing_and_ends_nobody(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Told().launcher.run(Verb.OPEN, opening(tmp_path / "a"), {})
    running = drivers(folder)
    order = opening(tmp_path / "b")
    made = submission(Verb.OPEN, order, RESIDENT)
    accepted = Resident._accepted

    def late(self: Resident, *given: Any) -> Any:
        """Stands still until the process has turned to others."""
        connection, answer = accepted(self, *given)
        connection.shutdown(socket.SHUT_WR)
        return connection, answer

    monkeypatch.setattr(Resident, "_accepted", late)
    session = DriverSession("an open", Verb.OPEN)
    begun = Resident().run(made.conf, {**os.environ, **made.environment}, Job(Verb.OPEN, order), 60.0, session)
    assert not begun and session.failed is None and not (tmp_path / "b").exists()
    assert drivers(folder) == running


def test_a_go_that_is_sent_and_never_read_begins_nothing_and_ends_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process gave its client up between the two, and serves somebody else by now."""
    monkeypatch.setattr(owners, "private_folder", lambda: tmp_path)
    monkeypatch.setattr(resident, "identity", lambda *_: "an-identity")
    ended: list[int] = []
    monkeypatch.setattr(resident, "_end", lambda group, _: ended.append(group))

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb", buffering=0) as requests:
            receive(requests)
            send(connection, Accepted(1, 1))
            until("the go", lambda: bool(select.select([connection], [], [], 0)[0]))

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(Place(tmp_path, "an-identity").socket))
        listener.listen()
        serving = threading.Thread(target=serve, args=(listener,))
        serving.start()
        job, session = Job(Verb.COMMIT, JobOrder({})), DriverSession("a commit", Verb.COMMIT)
        assert not Resident().run({}, {}, job, 60.0, session)
        serving.join()
    assert ended == []


@pytest.mark.parametrize("lines, fit", [(3, True), (100_000, False)])
def test_a_process_that_could_not_say_how_a_job_ended_serves_nobody_after_it(
    lines: int, fit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client stood still, and may end it once awake."""
    monkeypatch.setattr(Gateway, "of", lambda _: Mock(cpu_seconds=lambda: None))
    monkeypatch.setattr(job_resident, "_watch", lambda *_: None)
    monkeypatch.setattr(job_resident, "HANDSHAKE_SECONDS", 0.2)
    monkeypatch.setitem(verbs.CONTROL, Verb.ARCHIVE, lambda *_: print("one more\n" * lines))
    server = job_resident.Server(None, "an-identity")  # type: ignore[arg-type]
    ours, theirs = socket.socketpair()
    deadline = clock() + (60.0 if fit else 0.2)
    with ours, theirs:
        send(ours, Ask("an-identity", deadline))
        send(ours, Job(Verb.ARCHIVE, JobOrder({})))
        assert server._answer(theirs) is fit


def test_those_who_wait_for_a_busy_process_do_not_take_it_for_gone(folder: Path, tmp_path: Path) -> None:
    order = opening(tmp_path / "a")
    Told().launcher.run(Verb.OPEN, order, {})
    made = submission(Verb.OPEN, order, RESIDENT)
    place = Place(folder, resident.identity(made.conf, {**os.environ, **made.environment}))
    running = drivers(folder)
    for process in running:
        process.suspend()
    with ExitStack() as waiting:
        for _ in range(100):
            waiting.enter_context(resident._connect(place))
    for process in running:
        process.resume()
    assert drivers(folder) == running
