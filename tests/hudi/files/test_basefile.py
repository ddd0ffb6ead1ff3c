"""Base files over many partitions: how many, how large, in which order; what memory and disk hold meanwhile."""

from __future__ import annotations

import errno
import functools
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_slshudi.exceptions import ManifestError, TimelineUnreadable, TooManyFiles, TransientError
from airflow_provider_slshudi.handover import fencing
from airflow_provider_slshudi.hudi.files import basefile, spill
from airflow_provider_slshudi.hudi.files.basefile import BaseFileWriter
from airflow_provider_slshudi.hudi.schema import META_COLUMNS
from airflow_provider_slshudi.storage.files import Storage
from tests.namespaces import unshared

INSTANT = "20260101000000000"
SEED = 6
MIB = 1 << 20
Pull = tuple[pa.Table, pa.Array, pa.DictionaryArray]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return admitted(tmp_path / "table")


def admitted(table: Path) -> Storage:
    """A table's storage, where tasks may write files of the instant."""
    storage = Storage(f"file://{table}")
    fencing.admit(storage, INSTANT)
    return storage


@pytest.fixture
def local_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What Spark would name as its local directory."""
    (tmp_path / "local").mkdir()
    monkeypatch.setenv(spill.LOCAL_DIRS, str(tmp_path / "local"))
    return tmp_path / "local"


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch, local_dir: Path) -> None:
    """The writer's sizes divided by 64."""
    for name in ("BUFFER_BYTES", "ROW_GROUP_BYTES", "LEAST_ROW_GROUP_BYTES"):
        monkeypatch.setattr(basefile, name, getattr(basefile, name) // 64)


def pulls(count: int, rows: int, partitions: int, hot: float = 0.0, id_bytes: int = 16) -> Iterator[Pull]:
    """Pulls whose rows are over so many partitions at random, a share of them in the first; 190 bytes a row."""
    dice = np.random.default_rng(SEED)
    for number in range(count):
        codes = dice.integers(0, partitions, rows, dtype=np.int32)
        codes[dice.random(rows) < hot] = 0
        # Each pull has a dictionary of its own.
        values, indices = np.unique(codes, return_inverse=True)
        days = pa.DictionaryArray.from_arrays(
            pa.array(indices.astype(np.int32)), pa.array([f"day-{code}" for code in values], pa.string())
        )
        ids = dice.bytes(rows * id_bytes).hex()
        numbers = np.arange(number * rows, (number + 1) * rows, dtype=np.int64)
        table = pa.table(
            {
                "id": pa.array([ids[at : at + 2 * id_bytes] for at in range(0, len(ids), 2 * id_bytes)]),
                "number": numbers,
                "agent": pa.array([f"Mozilla/{code % 7} like many others, over and over again" for code in codes]),
                "rest": pa.array([[("a", "b")]] * rows, pa.map_(pa.string(), pa.string())),
                "day": days,
            }
        )
        keys = pa.array([f"0-{each}-0" for each in numbers])
        yield table, keys, days


def written(writer: BaseFileWriter, given: Iterator[Pull], count: int | None = None) -> list[dict[str, Any]]:
    with writer:
        for number, (rows, keys, days) in enumerate(given, 1):
            writer.write(rows, keys, "day", days, number / count if count else None)
        return writer.close()


def wanted() -> None:
    """Nobody decided about the instant."""


def assert_equal(storage: Storage, stats: list[dict[str, Any]], given: Iterator[Pull]) -> None:
    """Every partition holds its rows, in the order in which they were written."""
    pieces = [
        rows.set_column(4, "day", days.cast(pa.string())).append_column("_hoodie_record_key", keys)
        for rows, keys, days in given
    ]
    whole = pa.concat_tables(pieces)
    whole = whole.sort_by([("day", "ascending"), ("number", "ascending")])
    found: dict[str, list[pa.Table]] = defaultdict(list)
    sequence: list[str] = []
    for stat in stats:
        with pq.ParquetFile(storage.full(stat["path"])) as file:
            table = file.read()
        assert table.num_rows == stat["numWrites"]
        assert Path(storage.full(stat["path"])).stat().st_size == stat["fileSizeInBytes"]
        sequence += table["_hoodie_commit_seqno"].to_pylist()
        for column, value in (
            ("_hoodie_commit_time", INSTANT),
            ("_hoodie_partition_path", stat["partitionPath"]),
            ("_hoodie_file_name", Path(stat["path"]).name),
        ):
            assert table[column].unique().to_pylist() == [value]
        keys = table["_hoodie_record_key"]
        data = table.drop_columns(list(META_COLUMNS)).append_column("_hoodie_record_key", keys)
        found[stat["partitionPath"]].append(data)
    assert len(set(sequence)) == len(sequence)
    in_order = [table.cast(whole.schema) for _, tables in sorted(found.items()) for table in tables]
    assert pa.concat_tables(in_order).equals(whole), f"seed {SEED}"


@pytest.mark.parametrize("partitions", [1, 8, 9, 24, 400])
def test_a_batch_that_fits_in_memory_writes_one_file_per_partition(storage: Storage, partitions: int) -> None:
    stats = written(BaseFileWriter(storage, INSTANT, "0-0-0", MIB, wanted), pulls(10, 1000, partitions))
    assert len(stats) == partitions
    assert_equal(storage, stats, pulls(10, 1000, partitions))


@pytest.mark.parametrize("partitions", [1, 8, 9, 24, 400])
@pytest.mark.usefixtures("little_memory")
def test_a_batch_that_is_larger_than_memory_writes_one_file_per_partition_too(
    storage: Storage, local_dir: Path, partitions: int
) -> None:
    writer = BaseFileWriter(storage, INSTANT, "0-0-0", 64 * MIB, wanted)
    stats = written(writer, pulls(30, 1000, partitions))
    assert len(stats) == partitions
    assert_equal(storage, stats, pulls(30, 1000, partitions))
    assert (writer._spill.size > 0) == (partitions > basefile.OPEN_FILES)
    assert writer._spill.size < 30 * 1000 * 250
    assert not list(local_dir.iterdir()) and not spills_open(local_dir)


@pytest.mark.parametrize("hot", [0.5, 0.95])
@pytest.mark.usefixtures("little_memory")
def test_one_partition_with_most_of_the_rows_keeps_the_order_too(storage: Storage, hot: float) -> None:
    stats = written(BaseFileWriter(storage, INSTANT, "0-0-0", MIB // 2, wanted), pulls(30, 1000, 40, hot), 30)
    assert_equal(storage, stats, pulls(30, 1000, 40, hot))


@pytest.mark.parametrize(
    ("partitions", "each"), [*itertools.product([1, 9], [0.6, 1.3, 1.6, 2.3, 3.4]), (24, 1.3), (24, 2.3)]
)
@pytest.mark.usefixtures("little_memory")
def test_files_are_between_half_and_one_and_a_half_of_the_target(
    storage: Storage, partitions: int, each: float
) -> None:
    """`each` is how many target sizes a partition has in all, of which nobody told the writer."""
    given = long_batch(partitions)
    target = int(compressed(partitions) / partitions / each)
    stats = written(BaseFileWriter(storage, INSTANT, "0-0-0", target, wanted), iter(given), len(given))
    assert sum(stat["numWrites"] for stat in stats) == sum(len(keys) for _, keys, _ in given)
    sizes = np.array([stat["fileSizeInBytes"] for stat in stats])
    well = sizes[(sizes >= target / 2) & (sizes <= 1.5 * target)].sum()
    assert well >= 0.9 * sizes.sum(), f"target {target}, {sorted(sizes)} (seed {SEED})"


def test_without_knowing_how_much_is_done_a_file_ends_at_the_target(storage: Storage, little_memory: None) -> None:
    given = long_batch(1)
    target = compressed(1) // 8
    stats = written(BaseFileWriter(storage, INSTANT, "0-0-0", target, wanted), iter(given))
    sizes = [stat["fileSizeInBytes"] for stat in stats]
    assert all(0.9 * target < size < 1.2 * target for size in sizes[:-1]) and len(sizes) in {8, 9}


@functools.cache
def long_batch(partitions: int) -> list[Pull]:
    return list(pulls(50, 4000, partitions, id_bytes=64))


@functools.cache
def compressed(partitions: int) -> int:
    """Bytes of the long batch in files, one per partition."""
    with tempfile.TemporaryDirectory() as folder:
        alone = BaseFileWriter(admitted(Path(folder)), INSTANT, "0-0-0", 1 << 30, wanted)
        return sum(stat["fileSizeInBytes"] for stat in written(alone, iter(long_batch(partitions))))


@pytest.mark.parametrize(("partitions", "hot"), [(1, 0.0), (8, 0.0), (9, 0.0), (400, 0.0), (400, 0.95)])
@pytest.mark.usefixtures("little_memory")
def test_memory_is_bounded_and_so_are_open_files(storage: Storage, partitions: int, hot: float) -> None:
    before, peak = pa.total_allocated_bytes(), 0
    writer = BaseFileWriter(storage, INSTANT, "0-0-0", MIB // 4, wanted)
    for rows, keys, days in pulls(50, 1000, partitions, hot):
        writer.write(rows, keys, "day", days)
        del rows, keys
        peak = max(peak, pa.total_allocated_bytes() - before)
        assert writer._open <= basefile.OPEN_FILES
    # Beside the buffers: the last pull, and the slack of each of many small buffers.
    assert peak < 1.5 * basefile.BUFFER_BYTES + partitions * 8192 + MIB // 2
    writer.close()


def test_a_task_stays_small_whatever_it_writes(tmp_path: Path) -> None:
    """In a process of its own, with the sizes as they are: resident bytes over 150 and 400 MB of rows."""
    for partitions in (1, 40):
        small, large = (peak_of(tmp_path / f"{partitions}-{count}", count, partitions) for count in (30, 80))
        assert large < 420 * MIB, f"{partitions} partitions: {small >> 20} and {large >> 20} MiB"
        assert large < small + 60 * MIB, f"{partitions} partitions: {small >> 20} and {large >> 20} MiB"


def peak_of(table: Path, count: int, partitions: int) -> int:
    """Peak RSS of a process that writes so many pulls of 5 MB."""
    table.mkdir()
    code = f"""
import json
from pathlib import Path
import pyarrow as pa
from airflow_provider_slshudi.hudi.files.basefile import BaseFileWriter
from tests.hudi.files.test_basefile import admitted, pulls, wanted
(rows, keys, days), = pulls(1, 25_000, {partitions})
writer = BaseFileWriter(admitted(Path("{table}")), "{INSTANT}", "0-0-0", 128 << 20, wanted)
for number in range({count}):
    order = pa.array(range(len(keys)))
    writer.write(rows.take(order), keys.take(order), "day", days)
stats = writer.close()
# Not ru_maxrss, which begins with what the process that started this one has.
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(json.dumps([len(stats), int(status["VmHWM"].split()[0]) * 1024]))
"""
    environment = {**os.environ, spill.LOCAL_DIRS: str(table)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    files, peak = json.loads(done.stdout)
    assert files == partitions
    return int(peak)


@pytest.mark.usefixtures("little_memory")
def test_a_folder_that_is_not_there_is_named(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(spill.LOCAL_DIRS, "/nowhere/at/all")
    with pytest.raises(TransientError, match=r"/nowhere/at/all, which failed after 0 bytes: .*spark\.local\.dir"):
        written(BaseFileWriter(storage, INSTANT, "0-0-0", MIB, wanted), pulls(40, 1000, 400))


@pytest.mark.usefixtures("little_memory")
def test_a_disk_that_is_full_is_an_error_that_leaves_no_spill(
    storage: Storage, local_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first spill succeeds; then the disk is full, as /dev/full says it."""
    writer = BaseFileWriter(storage, INSTANT, "0-0-0", MIB, wanted)
    full = os.open("/dev/full", os.O_WRONLY)
    with (
        pytest.raises(TransientError, match=rf"{local_dir}, which failed after \d{{4,}} bytes: .*No space left"),
        writer,
    ):
        for rows, keys, days in pulls(40, 1000, 400):
            writer.write(rows, keys, "day", days)
            if writer._spill.size and full >= 0:
                assert spills_open(local_dir) and not list(local_dir.iterdir())
                os.dup2(full, writer._spill._file.fileno())  # type: ignore[union-attr]
                os.close(full)
                full = -1
    assert not spills_open(local_dir) and not list(local_dir.iterdir())
    assert not list(Path(storage.full("")).rglob("*.parquet"))


@pytest.mark.usefixtures("little_memory")
def test_without_spark_the_systems_temporary_folder_is_used(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(spill.LOCAL_DIRS)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "local"))
    writer = BaseFileWriter(storage, INSTANT, "0-0-0", MIB, wanted)
    for rows, keys, days in pulls(20, 1000, 400):
        writer.write(rows, keys, "day", days)
    assert spills_open(tmp_path / "local")
    with writer:
        writer.close()
    assert not spills_open(tmp_path / "local")


def spills_open(folder: Path) -> list[str]:
    """Files of the folder that this process has open, those without a name among them."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(entry.readlink()))
        except FileNotFoundError:
            continue
    return [name for name in found if name.startswith(f"{folder}/")]


def fence(storage: Storage, refuses: Callable[[], bool]) -> Callable[[], None]:
    def still_wanted() -> None:
        if refuses():
            raise ManifestError("no order", table=storage.uri, transaction="t1")

    return still_wanted


def markers(storage: Storage) -> list[Path]:
    return list(Path(storage.full(f".hoodie/.temp/{INSTANT}")).rglob("*.marker.CREATE"))


def files(storage: Storage) -> list[Path]:
    return list(Path(storage.full("")).rglob("*.parquet"))


def test_a_task_that_nobody_wants_any_more_learns_it_with_its_first_rows(storage: Storage) -> None:
    writer = BaseFileWriter(storage, INSTANT, "0-0-0", MIB, fence(storage, lambda: True))
    rows, keys, days = next(pulls(1, 10, 2))
    with pytest.raises(ManifestError):
        writer.write(rows, keys, "day", days)
    assert not markers(storage) and not files(storage)


@pytest.mark.usefixtures("little_memory")
def test_the_fence_refuses_the_file_of_rows_that_waited_on_the_disk(storage: Storage, local_dir: Path) -> None:
    withdrawn = False
    writer = BaseFileWriter(storage, INSTANT, "0-0-0", MIB, fence(storage, lambda: withdrawn))
    for rows, keys, days in pulls(20, 1000, 400):
        writer.write(rows, keys, "day", days)
    assert writer._spill.size and not markers(storage)
    withdrawn = True
    with pytest.raises(ManifestError), writer:
        writer.close()
    assert not markers(storage) and not files(storage) and not spills_open(local_dir)


@pytest.mark.usefixtures("little_memory")
def test_the_files_of_an_attempt_that_was_refused_are_deleted_and_the_markers_name_them(storage: Storage) -> None:
    """The answer changes between the marker and the end of the third file of rows that waited on the disk."""
    writer = BaseFileWriter(storage, INSTANT, "0-0-0", MIB, fence(storage, lambda: len(files(storage)) == 3))
    for rows, keys, days in pulls(20, 1000, 400):
        writer.write(rows, keys, "day", days)
    with pytest.raises(ManifestError), writer:
        writer.close()
    assert not files(storage) and len(markers(storage)) == 3


def test_an_attempt_that_is_refused_at_a_later_file_leaves_none_that_it_has_open(storage: Storage) -> None:
    """The order is withdrawn between the first file, which is still open, and the second."""
    writer = BaseFileWriter(storage, INSTANT, "0-0-0", MIB, fence(storage, lambda: len(markers(storage)) == 2))
    rows, keys, days = next(pulls(1, 20, 2))
    with pytest.raises(ManifestError), writer:
        writer.write(rows, keys, "day", days)
        writer.close()
    assert not files(storage) and len(markers(storage)) == 1


def test_a_task_whose_rows_have_more_partitions_than_a_commit_takes_ends_early_and_leaves_no_file(
    storage: Storage, local_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(basefile, "MOST_FILES", 3)
    (rows, keys, partitions), *_ = pulls(1, 100, 4)
    with (
        pytest.raises(TooManyFiles, match=r"4 files or more, .* partition column event_date"),
        BaseFileWriter(storage, INSTANT, "0-0-0", MIB, lambda: None) as writer,
    ):
        writer.write(rows, keys, "event_date", partitions)
    assert list(storage.walk()) == []


def test_a_file_has_its_name_once_it_is_whole(storage: Storage) -> None:
    rows, keys, days = next(pulls(1, 10_000, 1))
    with BaseFileWriter(storage, INSTANT, "0-0-0", MIB, wanted) as writer:
        writer.write(rows, keys, "day", days)
        assert len(markers(storage)) == 1
        assert [path for path, _ in storage.walk()] == ["day=day-0/.hoodie_partition_metadata"]
        (stat,) = writer.close()
    assert stat["path"] in dict(storage.walk())


@pytest.mark.parametrize("done", [fencing.shut, fencing.fence, fencing.delete])
def test_a_file_gets_no_name_once_its_instant_is_decided_whatever_the_task_is_told(
    storage: Storage, done: Callable[[Storage, str], None]
) -> None:
    rows, keys, days = next(pulls(1, 10_000, 1))
    writer = BaseFileWriter(storage, INSTANT, "0-0-0", MIB, wanted)
    writer.write(rows, keys, "day", days)
    done(storage, INSTANT)
    with pytest.raises(ManifestError, match=f"its instant {INSTANT} was decided meanwhile"):
        writer.close()
    with pytest.raises(ManifestError, match="was decided meanwhile"):
        BaseFileWriter(storage, INSTANT, "1-0-1", MIB, wanted).write(rows, keys, "day", days)
    assert not files(storage)


def test_a_table_that_has_nothing_of_an_instant_is_left_alone(tmp_path: Path) -> None:
    for done in (fencing.fence, fencing.shut):
        done(Storage(f"file://{tmp_path / 'quarantine'}"), INSTANT)
    assert list(tmp_path.iterdir()) == []


def test_what_one_left_that_died_while_it_shut_the_instant_is_gone_with_the_next(storage: Storage) -> None:
    here, owner = fencing.folder(INSTANT), f"{fencing.folder(INSTANT)}/owner.json"
    storage.write(owner, b"{}")
    storage.complete("", storage.create(f"{here}/files/a.parquet"))
    assert storage.rename(f"{here}/files", f"{here}/shut-{'0' * 32}")
    fencing.fence(storage, INSTANT)
    assert storage.names(here) == ["owner.json"]
    # The quarantine has no owner there.
    storage.delete(owner)
    fencing.fence(storage, INSTANT)
    assert storage.names(here) is None


@pytest.fixture
def elsewhere(storage: Storage) -> Iterator[Path]:
    """A folder on another file system, which is the partition of the first day."""
    memory, table = Path("/dev/shm"), Path(storage.full(""))
    if not memory.is_dir() or memory.stat().st_dev == table.stat().st_dev:
        pytest.skip("there is no other file system to write to")
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        (table / "day=day-0").symlink_to(folder)
        yield Path(folder)


def test_a_partition_on_another_file_system_gets_its_files(storage: Storage, elsewhere: Path) -> None:
    rows, keys, days = next(pulls(1, 1_000, 1))
    with BaseFileWriter(storage, INSTANT, "0-0-0", MIB, wanted) as writer:
        writer.write(rows, keys, "day", days)
        (stat,) = writer.close()
    with pq.ParquetFile(storage.full(stat["path"])) as file:
        assert file.metadata.num_rows == 1_000
    assert storage.names(f"{fencing.folder(INSTANT)}/files") == []
    found = {path.name for path in elsewhere.iterdir()}
    assert found == {Path(stat["path"]).name, ".hoodie_partition_metadata"}


def test_a_file_that_is_copied_to_another_file_system_while_its_instant_is_shut_gets_no_name(
    storage: Storage, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copyfile

    def slow(source: str, target: str) -> None:
        copy(source, target)
        fencing.shut(storage, INSTANT)

    monkeypatch.setattr(shutil, "copyfile", slow)
    rows, keys, days = next(pulls(1, 1_000, 1))
    with BaseFileWriter(storage, INSTANT, "0-0-0", MIB, wanted) as writer:
        writer.write(rows, keys, "day", days)
        with pytest.raises(ManifestError, match="was decided meanwhile"):
            writer.close()
    assert {path.name for path in elsewhere.iterdir()} == {".hoodie_partition_metadata"}


HELD = """
import subprocess, sys
from pathlib import Path
from airflow_provider_slshudi.handover import batch_files, fencing
from airflow_provider_slshudi.storage.files import Storage

storage, instant = Storage(sys.argv[1]), sys.argv[2]
here = Path(storage.full(fencing.folder(instant)))
fencing.admit(storage, instant)
batch_files.write_owner(storage, instant, batch_files.Owner("t", "p", 1))
for name in ("files/a.parquet", "files/b.parquet", "files/c.parquet", "misfits.arrows"):
    (here / name).touch()
outside = here.parents[3] / "outside"
outside.mkdir()
(outside / "precious").touch()
(here / "files" / "link").symlink_to(outside)
held = [here / name for name in sys.argv[3:]]
for file in held:
    subprocess.run(["mount", "--bind", file, file], check=True)
for _ in range(2):
    fencing.fence(storage, instant)
    fencing.delete(storage, instant)
print(*(path.name for path in here.rglob("*") if path.is_file()))
"""


@pytest.mark.parametrize("held", ["files/b.parquet", "misfits.arrows"])
def test_a_file_that_is_held_open_stops_nobody_and_stays_alone(storage: Storage, held: str) -> None:
    """NFS and FUSE keep such a file, and its folder; here nobody may remove a mount point, which only root can make."""
    command = [*unshared("mount"), sys.executable, "-c", HELD, storage.uri, INSTANT, held]
    assert subprocess.check_output(command, text=True).split() == [held.rpartition("/")[2]]
    fencing.delete(storage, INSTANT)
    assert storage.names(fencing.folder(INSTANT)) is None
    assert (Path(storage.full("")).parent / "outside" / "precious").exists()


def test_notes_that_cannot_be_deleted_are_an_error(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.write(f"{fencing.folder(INSTANT)}/owner.json", b"{}")

    def fail(self: Storage, path: str) -> None:
        raise TimelineUnreadable(f"{path} cannot be deleted", table=self.uri) from OSError(code, "")

    monkeypatch.setattr(Storage, "delete_folder", fail)
    code = errno.EBUSY
    with pytest.raises(TimelineUnreadable):
        fencing.delete(storage, INSTANT)
    # Without a note, only what is in use may stay.
    storage.delete(f"{fencing.folder(INSTANT)}/owner.json")
    fencing.delete(storage, INSTANT)
    code = errno.EACCES
    with pytest.raises(TimelineUnreadable):
        fencing.delete(storage, INSTANT)


def test_a_partition_whose_folder_was_taken_away_meanwhile_gets_its_file(storage: Storage) -> None:
    rows, keys, days = next(pulls(1, 10_000, 1))
    with BaseFileWriter(storage, INSTANT, "0-0-0", MIB, wanted) as writer:
        writer.write(rows, keys, "day", days)
        storage.delete_folder("day=day-0")
        (stat,) = writer.close()
    assert storage.exists(stat["path"])
    # Without it readers that list the table's folders do not find the file.
    assert storage.exists("day=day-0/.hoodie_partition_metadata")
