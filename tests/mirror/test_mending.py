"""What of a mirror was lost, late, doubled or done by another client, the next run finds and mends."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from airflow_provider_slshudi.exceptions import ConfigError, MirrorFailed
from airflow_provider_slshudi.mirror.iceberg import PROPERTIES
from airflow_provider_slshudi.mirror.table_changes import INSTANT_KEY
from airflow_provider_slshudi.storage.files import DELTA_LOG
from airflow_provider_slshudi.transaction.context import _no_catalog
from tests.mirror.conftest import TABLE, Mirrored
from tests.mirror.test_follow import rows
from tests.needs import DELTALAKE

pytest.importorskip("deltalake", reason=DELTALAKE)

from deltalake import DeltaTable, write_deltalake

Make = Callable[..., Mirrored]
Mess = Callable[[Mirrored], object]
FOREIGN = pa.table({"n": pa.array([99], pa.int32()), "day": ["z"]})


@contextmanager
def failing(owner: Any, name: str, before: bool) -> Iterator[list[int]]:
    """Lets a method fail once with a network's error: before it does something, or after, so the answer is lost."""
    real, calls = getattr(owner, name), list[int]()

    def fail(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) > 1:
            return real(*args, **kwargs)
        if not before:
            real(*args, **kwargs)
        raise OSError("connection reset by peer")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, fail)
        yield calls


@pytest.mark.parametrize("before", [True, False], ids=["not done", "answer lost"])
@pytest.mark.parametrize(
    ("owner", "name"),
    [(SqlCatalog, "commit_table"), (DeltaTable, "create_write_transaction")],
    ids=["iceberg", "delta"],
)
def test_a_commit_without_an_answer_is_neither_doubled_nor_lost(
    mirrored: Make, owner: Any, name: str, before: bool
) -> None:
    table = mirrored()
    table.made.append(rows("a", 1))
    table.follow()
    first = table.made.append(rows("a", 2))
    table.made.update(first[0], rows("a", 2, 3))
    with failing(owner, name, before) as calls:
        table.follow()
    assert len(calls) == (3 if before else 2)
    table.require(rows("a", 1, 2, 3))
    assert len(table.iceberg.metadata.snapshots) == 3 and table.delta.version() == 2


def test_of_two_runs_at_once_one_looks_again(mirrored: Make) -> None:
    table = mirrored()
    table.made.append(rows("a", 1))
    table.follow()
    table.made.append(rows("a", 2))
    real = SqlCatalog.commit_table
    with pytest.MonkeyPatch.context() as patch:

        def after_another_run(*args: Any, **kwargs: Any) -> Any:
            patch.setattr(SqlCatalog, "commit_table", real)
            table.follow()
            return real(*args, **kwargs)

        patch.setattr(SqlCatalog, "commit_table", after_another_run)
        assert table.follow()["iceberg"].instants == ()
    write = DeltaTable.create_write_transaction
    table.made.append(rows("a", 3))
    with pytest.MonkeyPatch.context() as patch:

        def written_after(*args: Any, **kwargs: Any) -> Any:
            patch.setattr(DeltaTable, "create_write_transaction", write)
            table.follow()
            return write(*args, **kwargs)

        patch.setattr(DeltaTable, "create_write_transaction", written_after)
        assert table.follow()["delta"].instants == ()
    table.require(rows("a", 1, 2, 3))


def test_a_mirror_that_fails_holds_up_no_other(mirrored: Make) -> None:
    table = mirrored()
    table.made.append(rows("a", 1))
    table.catalog["uri"] = "sqlite:////nowhere/at/all.db"
    with pytest.raises(MirrorFailed, match=r"Iceberg table lake\.events: OperationalError"):
        table.follow()
    assert table.delta.count() == 1
    table.made.append(rows("a", 2))
    object.__setattr__(table.work, "iceberg_catalog", _no_catalog)
    with pytest.raises(ConfigError, match="none 'c' of an Iceberg catalog"):
        table.follow()
    assert table.delta.count() == 2


def _appended(table: Mirrored) -> None:
    table.iceberg.append(FOREIGN)
    write_deltalake(table.delta, FOREIGN, mode="append")


def _deleted(table: Mirrored) -> None:
    table.iceberg.delete("n = 1")
    table.delta.delete("n = 1")


def _taken_back(table: Mirrored) -> None:
    oldest = min(table.iceberg.metadata.snapshots, key=lambda one: one.sequence_number)
    table.iceberg.manage_snapshots().set_current_snapshot(snapshot_id=oldest.snapshot_id).commit()
    table.delta.restore(0)


def _dropped(table: Mirrored) -> None:
    table.iceberg.catalog.drop_table(TABLE)
    shutil.rmtree(table.made.storage.full(DELTA_LOG))


def _made_by_another(table: Mirrored) -> None:
    catalog = table.iceberg.catalog
    catalog.drop_table(TABLE)
    catalog.create_table(TABLE, FOREIGN.schema, location=f"{table.made.storage.uri}_other").append(FOREIGN)
    shutil.rmtree(table.made.storage.full(DELTA_LOG))
    write_deltalake(table.made.storage.full(""), FOREIGN, partition_by=["day"])


def _expired(table: Mirrored) -> None:
    head = table.iceberg.current_snapshot()
    older = [one.snapshot_id for one in table.iceberg.metadata.snapshots if one != head]
    table.iceberg.maintenance.expire_snapshots().by_ids(older).commit()
    table.delta.optimize.compact()
    table.delta.cleanup_metadata()


@pytest.mark.parametrize("mess", [_appended, _deleted, _taken_back, _dropped, _expired])
@pytest.mark.parametrize("then", [True, False], ids=["and a commit", "and nothing"])
def test_what_another_client_did_is_taken_back(mirrored: Make, mess: Mess, then: bool) -> None:
    table = mirrored()
    table.made.append(rows("a", 1))
    table.follow()
    table.made.append(rows("b", 2), rows("a", 3))
    table.follow()
    mess(table)
    expected = [*rows("a", 1, 3), *rows("b", 2)]
    if then:
        table.made.append(rows("a", 4))
        expected += rows("a", 4)
    table.follow()
    table.require(expected)
    again = table.follow()
    assert all(not done.instants and not done.reconciled for done in again.values())


def test_a_table_of_the_same_name_that_another_client_made_says_so_or_becomes_ours(mirrored: Make) -> None:
    table = mirrored()
    table.made.append(rows("a", 1))
    table.follow()
    _made_by_another(table)
    with pytest.raises(Exception, match="other partitions than the Hudi table: drop it"):
        table.follow()
    assert table.delta.to_pyarrow_table().to_pylist() == rows("a", 1)
    table.iceberg.catalog.drop_table(TABLE)
    table.follow()
    table.require(rows("a", 1))


def test_properties_that_guard_the_files_come_back(mirrored: Make) -> None:
    table = mirrored()
    table.made.append(rows("a", 1))
    table.follow()
    table.iceberg.transaction().set_properties({"gc.enabled": "true"}).remove_properties(
        "commit.retry.num-retries"
    ).commit_transaction()
    table.follow()
    assert {key: table.iceberg.properties.get(key) for key in PROPERTIES} == PROPERTIES


def test_a_mirror_that_is_late_follows_or_compares_where_the_archive_begins(mirrored: Make) -> None:
    table = mirrored()
    numbers = range(12)
    for number in numbers[:4]:
        table.made.append(rows("a", number))
    table.made.archive(keep=2)
    table.follow()
    table.require(rows("a", *numbers[:4]))
    for number in numbers[4:8]:
        table.made.append(rows("a", number))
    assert {len(done.instants) for done in table.follow().values()} == {4}
    for number in numbers[8:]:
        table.made.append(rows("a", number))
    table.made.archive(keep=2)
    assert all(done.reconciled for done in table.follow().values())
    table.require(rows("a", *numbers))


def test_a_batch_that_completes_after_later_ones_is_not_forgotten(mirrored: Make) -> None:
    table = mirrored()
    early, late = table.made.begin(), table.made.begin()
    stat = table.made.write(early, rows("a", 1))
    table.made.complete(late, [table.made.write(late, rows("a", 2))])
    table.follow()
    table.require(rows("a", 2))
    table.made.append(rows("a", 3))
    table.follow()
    table.made.complete(early, [stat])
    assert table.follow()["iceberg"].instants == (early,)
    table.require(rows("a", 1, 2, 3))
    assert table.follow()["delta"].instants == ()


def test_an_instant_that_was_completed_twice_counts_once(mirrored: Make) -> None:
    table = mirrored()
    table.made.append(rows("a", 0))
    table.follow()
    instant = table.made.begin()
    stats = [table.made.write(instant, rows("a", 1))]
    table.made.complete(instant, stats)
    table.follow()
    table.made.complete(instant, stats)
    assert table.follow()["iceberg"].instants == ()
    table.require(rows("a", 0, 1))


def test_what_was_rolled_back_goes_and_what_it_had_replaced_comes_back(mirrored: Make) -> None:
    table = mirrored()
    first = table.made.append(rows("a", 1), rows("b", 2))
    given_up = table.made.begin()
    table.follow()
    table.made.roll_back(given_up)
    assert all(not done.reconciled for done in table.follow().values())
    updated = table.made.update(first[0], rows("a", 1, 10))
    table.follow()
    table.require([*rows("a", 1, 10), *rows("b", 2)])
    instant = str(updated["path"]).rpartition("_")[2].removesuffix(".parquet")
    table.made.roll_back(instant, str(updated["path"]))
    assert all(done.reconciled for done in table.follow().values())
    table.require([*rows("a", 1), *rows("b", 2)])
    assert all(not done.reconciled for done in table.follow().values())


def test_an_older_copy_of_the_table_that_was_put_back_is_noticed(mirrored: Make, tmp_path: Path) -> None:
    table = mirrored()
    first = table.made.append(rows("a", 1))
    table.follow()
    folder = Path(table.made.storage.full(""))
    shutil.copytree(folder, tmp_path / "backup", ignore=shutil.ignore_patterns(DELTA_LOG))
    table.made.update(first[0], rows("a", 1, 2))
    table.follow()
    log = folder / DELTA_LOG
    log.rename(tmp_path / "log")
    shutil.rmtree(folder)
    (tmp_path / "backup").rename(folder)
    (tmp_path / "log").rename(log)
    table.made.append(rows("a", 9))
    assert all(done.reconciled for done in table.follow().values())
    table.require(rows("a", 1, 9))


def test_a_batch_that_is_not_committed_is_not_shown(mirrored: Make) -> None:
    table = mirrored()
    pending = table.made.begin()
    table.made.write(pending, rows("a", 7))
    assert table.follow()["iceberg"].instants == ()
    table.made.append(rows("a", 1))
    table.follow()
    table.require(rows("a", 1))
    assert INSTANT_KEY not in table.iceberg.current_snapshot().summary.additional_properties
    assert Path(table.made.storage.full("day=a")).is_dir()
