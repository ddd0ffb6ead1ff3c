"""Tables in HDFS: what storage promises holds there too, and so does what batches, upserts and services make of it."""

from __future__ import annotations

import gc
import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from airflow_provider_slshudi.doctor.table import Place
from airflow_provider_slshudi.exceptions import RuntimeMissing, TableDenied, TimelineUnreadable
from airflow_provider_slshudi.handover import fencing
from airflow_provider_slshudi.hudi import markers
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.local.process import LocalSls
from airflow_provider_slshudi.services import maintenance
from airflow_provider_slshudi.services.rewrite import cluster, compact
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.storage import hdfs, namenodes
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.system.points import Point
from tests.crash.cases import Case, Step, Victim
from tests.crash.world import World
from tests.exact.counts import count
from tests.exact.outcome import Outcome
from tests.exact.troubles.crash import each_its_own, run_case
from tests.hadoop import hadoop, service, tell
from tests.pipelines import served_often, upserted_often
from tests.scenarios import Scenario
from tests.waiting import ends_with_its_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long
INSTANT = "20260131000000000"


@pytest.fixture(scope="module")
def lake() -> Iterator[str]:
    with hadoop(nodes=0) as made:
        yield f"{made.files}/lake"


@pytest.fixture(scope="module")
def worlds(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, server: LocalSls, lake: str
) -> Callable[[Step], World]:
    return each_its_own(tmp_path_factory.mktemp("crash"), spark, server, lake)


@pytest.fixture
def table(lake: str, request: pytest.FixtureRequest) -> Storage:
    return Storage(f"{lake}/{request.node.name.partition('[')[0]}")


def tried(act: Callable[[], Any]) -> Any:
    """What an act gives, or the type of its error."""
    try:
        return act()
    except Exception as error:
        return type(error)


def created(storage: Storage, path: str, content: bytes) -> int:
    stream = storage.create(path)
    stream.write(content)
    storage.complete(path, stream)
    return storage.size(path)


def test_every_question_and_act_has_the_answer_that_a_local_disk_gives(table: Storage, tmp_path: Path) -> None:
    acts: list[Callable[[Storage], Any]] = [
        lambda it: it.read("a/b"),
        lambda it: it.names("a"),
        lambda it: it.files("a"),
        lambda it: it.write("a/b", b"1"),
        lambda it: it.write("a/b", b"22", via=".hoodie/via"),
        lambda it: (it.read("a/b"), it.size("a/b"), it.names("a"), it.folders(""), it.names("a/b"), it.files("a/b")),
        lambda it: (
            it.exists("a"),
            it.exists("a/b"),
            it.exists("a/c"),
            it.exists("a/b/c"),
            it.existing(["a", "a/b", "a/c"]),
        ),
        lambda it: created(it, "c/ö %2F#?", b"333"),
        lambda it: sorted(it.walk()),
        lambda it: it.create_within("none/d"),
        lambda it: it.create_within("a/b/d"),
        lambda it: it.create("a"),
        lambda it: it.write("a", b""),
        lambda it: it.make_folder("a/b/d"),
        lambda it: it.make_folder("e/f"),
        lambda it: it.make_folder("e/f"),
        lambda it: it.names("e"),
        lambda it: it.rename("none", "a/d"),
        lambda it: it.rename("a/b", "none/d"),
        lambda it: (it.rename("a/b", "c/ö %2F#?"), it.read("c/ö %2F#?"), it.exists("a/b")),
        lambda it: (it.rename("c", "g"), it.files("")),
        lambda it: it.rename("g", "e"),
        lambda it: it.delete("none"),
        lambda it: it.delete_folder("none"),
        lambda it: (it.delete_files(["none", "g/ö %2F#?"]), it.names("g")),
        lambda it: it.delete_folder("e"),
        lambda it: it.names("e"),
        lambda it: Storage(f"{it.uri}/x/y").nearest().uri == it.uri,
    ]
    local = Storage(f"file://{tmp_path}")
    for number, act in enumerate(acts):
        assert tried(lambda act=act: act(table)) == tried(lambda act=act: act(local)), number  # type: ignore[misc]
    assert table.relative(f"{table.uri}/x=1/f") == "x=1/f"
    with pytest.raises(TimelineUnreadable):
        table.relative(table.uri.replace("/lake/", "/other/") + "/f")


def test_a_task_of_an_instant_that_was_shut_names_nothing_and_begins_nothing(table: Storage) -> None:
    fencing.admit(table, INSTANT)
    begun, name = fencing.nameless(table, INSTANT, "x=1/begun.parquet"), "x=1/begun.parquet"
    table.make_folder("x=1")
    stream = table.create_within(begun)
    assert stream is not None
    stream.write(b"rows")
    fencing.shut(table, INSTANT)
    with pytest.raises(TimelineUnreadable):
        table.complete(begun, stream)
    assert not table.rename(begun, name)
    assert table.create_within(fencing.nameless(table, INSTANT, "x=1/more.parquet")) is None
    assert table.files("") == []


def test_nobody_begins_a_file_below_the_bar_of_an_instant(table: Storage) -> None:
    marker = f"{markers.folder(INSTANT)}/x=1/f.parquet.marker.CREATE"
    created(table, marker, b"")
    markers.bar(table, INSTANT)
    with pytest.raises(TimelineUnreadable, match="is not a directory"):
        table.create(marker)


def test_a_fork_of_a_process_with_connections_is_told_so(table: Storage) -> None:
    table.write("a", b"1")
    child = os.fork()
    if not child:
        os._exit(tried(lambda: table.read("a")) is not TimelineUnreadable)
    assert os.waitpid(child, 0)[1] == 0


def test_another_user_is_refused_in_the_name_nodes_words(table: Storage) -> None:
    table.write("a", b"1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HADOOP_USER_NAME", "anna")
        hdfs._client.cache_clear()
        with pytest.raises(TableDenied, match=r"AccessControlException: Permission denied: user=anna[^\n]*$"):
            table.write("a", b"2")
    hdfs._client.cache_clear()
    assert table.read("a") == b"1"


def test_the_doctor_leaves_nothing_where_a_table_will_be(table: Storage) -> None:
    assert [check.look().verdict.value for check in Place(table.uri, lambda: False).checks("table")] == ["ok"] * 3
    assert not table.exists("")


def test_a_name_node_that_is_gone_is_no_missing_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namenodes, "_ROUNDS", 1)
    with pytest.raises(TimelineUnreadable, match="Connection refused"):
        Storage("hdfs://127.0.0.1:1/lake/table").read("a")


def test_a_name_node_that_does_not_answer_leaves_a_task_its_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs, "_ANSWER_SECONDS", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        storage = Storage(f"hdfs://127.0.0.1:{mute.getsockname()[1]}/lake/table")
        with pytest.raises(TimelineUnreadable, match="has not answered for 2 s"):
            storage.read("a")
        monkeypatch.setattr(hdfs, "_ANSWER_SECONDS", 60.0)
        ends_with_its_time(lambda: storage.read("a"))


def test_no_observer_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs, "_ANSWER_SECONDS", 5.0)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as mute:
        ha = "org.apache.hadoop.hdfs.server.namenode.ha"
        provider = {"dfs.client.failover.proxy.provider.observed": f"{ha}.ObserverReadProxyProvider"}
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        tell(tmp_path, service("observed", {"a": address, "b": address}) | provider)
        with pytest.raises(TimelineUnreadable, match="has not answered for 5 s"):
            Storage("hdfs://observed/lake/table").read("a")
        said = b""
        # Who looks whether a node listens says nothing.
        while not said:
            asked, _ = mute.accept()
            with asked:
                said = asked.recv(65_536)
    assert b"getFileInfo" in said or b"getBlockLocations" in said
    assert b"getHAServiceState" not in said


@pytest.mark.parametrize("gone, instead", [("a/b", None), ("a/b", b""), ("a/b/c", b"")])
def test_a_folder_that_vanishes_or_becomes_a_file_while_a_tree_is_listed_takes_nothing_else_along(
    table: Storage, monkeypatch: pytest.MonkeyPatch, gone: str, instead: bytes | None
) -> None:
    table.delete_folder("a")
    for name in ("a/b/c/one", "a/d/two", "e"):
        created(table, name, b"")
    ask, asked = hdfs._Handler._within, list[str]()

    def within(handler: hdfs._Handler, folder: str) -> Any:
        asked.append(folder)
        if folder.endswith("/a/b/c"):
            table.delete_folder(gone)
            if instead is not None:
                created(table, gone, instead)
        return ask(handler, folder)

    monkeypatch.setattr(hdfs._Handler, "_within", within)
    assert sorted(name for name, _ in table.walk()) == ["a/d/two", "e"]
    assert len(asked) == 5


def test_a_name_that_no_setting_knows_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    with pytest.raises(TimelineUnreadable, match=r"HADOOP_CONF_DIR, which is not set, .* needs its port"):
        Storage("hdfs://nameservice/lake/table").read("a")


def test_a_file_whose_write_failed_or_that_nobody_closed_is_not_completed(
    table: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.make_folder("a")
    first = table.create_within("a/left")
    assert first is not None
    first.write(b"half")
    del first
    gc.collect()
    assert table.size("a/left") == 0, "it is open yet"
    second = table.create_within("a/failed")
    assert second is not None
    second.write(b"half")
    real = hdfs._asked
    monkeypatch.setattr(hdfs, "_asked", lambda _: (_ for _ in ()).throw(OSError("the quota is used up")))
    with pytest.raises(OSError, match="used up"):
        second.write(b"more")
    monkeypatch.setattr(hdfs, "_asked", real)
    with pytest.raises(TimelineUnreadable, match="used up"):
        table.complete("a/failed", second)
    assert table.size("a/failed") == 0


def test_the_client_gets_bytes_whatever_arrow_hands_over() -> None:
    """What is not bytes goes over number by number, at fifty times the CPU."""
    got: list[object] = []
    raw = SimpleNamespace(write=lambda content: got.append(content) or len(content), close=lambda: None)  # type: ignore[func-returns-value]
    stream = pa.PythonFile(hdfs._Writer(raw), mode="w")  # type: ignore[arg-type]
    stream.write(b"rows")
    stream.write(pa.py_buffer(b"more"))
    stream.close()
    assert got == [b"rows", b"more"] and {type(content) for content in got} == {bytes}


def test_without_its_client_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(RuntimeMissing, match=r"airflow-provider-slshudi\[hdfs\]"):
        Storage("hdfs://nameservice/lake/table").read("a")


def test_batches_clustering_cleaning_and_archival(scenario: Callable[..., Scenario], lake: str) -> None:
    made = scenario(location=f"{lake}/appends", described=served_often, misfits="quarantine")
    for number in range(4):
        made.put(10, first=10 * number)
        assert made.batch(f"run-{number}").state is State.COMMITTED
        if number == 1:
            assert cluster(made.by("maintenance")).instant
    assert maintenance.clean(made.by("maintenance")).files
    maintenance.archive(made.by("maintenance"))
    proof = verify(made.work, source=True)
    assert proof.ok and proof.rows == 40
    count(made.work, 40).require()


def test_upserts_and_compaction(scenario: Callable[..., Scenario], lake: str) -> None:
    made = scenario(location=f"{lake}/upserts", described=upserted_often)
    for number in range(2):
        made.put(10, first=10 * number)
        assert made.batch(f"run-{number}").state is State.COMMITTED
    assert compact(made.by("maintenance")).instant
    count(made.work, 20).require()


@pytest.mark.parametrize(
    "case",
    [
        Case(Step.SETTLE, Point.ROLLBACK_COMPLETED, Victim.JVM),
        Case(Step.COMMIT, Point.COMMIT_COMPLETED, Victim.JVM),
    ],
    ids=str,
)
def test_drivers_that_die_lose_and_double_nothing(worlds: Callable[[Step], World], case: Case) -> None:
    run_case(worlds, case, Outcome())
