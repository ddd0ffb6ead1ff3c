"""The checks of a table's place, which leave nothing there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from airflow_provider_slshudi.doctor.finding import Verdict
from airflow_provider_slshudi.doctor.table import Place
from airflow_provider_slshudi.exceptions import LedgerError, PipelineConflict
from airflow_provider_slshudi.hudi.layout import PROPERTIES
from airflow_provider_slshudi.storage.files import Storage
from tests.doctor.conftest import Looked
from tests.needs import needs_root
from tests.services import s3_store
from tests.users import NOBODY, open_folder, run_as

OK, WARNING, WRONG, UNKNOWN = Verdict


def never() -> bool:
    return False


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_table_that_is_not_there_yet_is_written_beside_and_nothing_is_left(tmp_path: Path, looked: Looked) -> None:
    (tmp_path / "lake").mkdir()
    found = looked(Place(f"file://{tmp_path}/lake/events/clicks", never).checks("table"))
    assert {item.verdict for item in found.values()} == {OK}
    assert "no table yet" in found["table"].seen
    assert [path.name for path in tmp_path.rglob("*")] == ["lake"]


def test_a_table_is_written_read_and_deleted_in_this_package_s_own_folder(tmp_path: Path, looked: Looked) -> None:
    Storage(f"file://{tmp_path}").write(PROPERTIES, b"hoodie.table.name=clicks\n")
    before = files(tmp_path)
    found = looked(Place(f"file://{tmp_path}", never).checks("table"))
    assert {item.verdict for item in found.values()} == {OK}
    assert files(tmp_path) == before


def test_a_table_that_the_ledger_knows_and_that_is_not_there_is_wrong(tmp_path: Path, looked: Looked) -> None:
    found = looked(Place(f"file://{tmp_path}/clicks", lambda: True).checks("table"))
    assert found["table"].verdict is WRONG and "mounted" in found["table"].mend


def test_a_table_s_path_that_was_edited_is_told_before_a_mount_is_looked_for(tmp_path: Path, looked: Looked) -> None:
    def another() -> bool:
        raise PipelineConflict("put `table.path` back", pipeline="clicks", other="file:///lake/clicks")

    Storage(f"file://{tmp_path}/taken").write(PROPERTIES, b"hoodie.table.name=clicks\n")
    for path in ("clicks", "taken"):
        found = looked(Place(f"file://{tmp_path}/{path}", another).checks("table"))["table"]
        assert found.verdict is WRONG and "put `table.path` back" in found.seen and "mounted" not in found.mend


@pytest.mark.parametrize("error", [LookupError("no ledger"), LedgerError("refused")])
def test_a_ledger_that_cannot_be_asked_leaves_it_open(tmp_path: Path, error: Exception, looked: Looked) -> None:
    def written() -> bool:
        raise error

    found = looked(Place(f"file://{tmp_path}/clicks", written).checks("table"))
    assert found["table"].verdict is UNKNOWN and str(error) in found["table"].seen


@needs_root
def test_another_user_s_table_is_told_with_its_owner(looked: Looked) -> None:
    code = (
        "import sys; from airflow_provider_slshudi.doctor.table import Place; "
        "from airflow_provider_slshudi.doctor.finding import run; "
        "found = run('it', Place(sys.argv[1], lambda: False).checks('table')); "
        "print(*[f'{item.check}: {item.verdict.value}: {item.seen}' for item in found], sep='\\n')"
    )
    with open_folder() as folder:
        table = folder / "clicks"
        Storage(f"file://{table}").write(PROPERTIES, b"hoodie.table.name=clicks\n")
        for path in (table, *table.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        told = run_as(NOBODY, code, f"file://{table}")
        assert "table's files: wrong" in told and "belongs to root; this process runs as nobody" in told
        for path in (table, *table.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        found = looked(Place(f"file://{table}", never).checks("table"))
        assert found["table's files"].verdict is OK, "root may"
        assert found["table's owner"].verdict is WRONG and "belongs to nobody" in found["table's owner"].seen


@pytest.mark.long
def test_an_object_store_is_written_read_and_deleted_in(looked: Looked, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_store("lake") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        found = looked(Place("s3a://lake/events", never).checks("table"))
        assert {item.verdict for item in found.values()} == {OK}
        assert Storage("s3a://lake/events").files("") == []
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        found = looked(Place("s3a://lake/events", never).checks("table"))
        assert {found["table"].verdict, found["table's files"].verdict} == {WRONG}
    found = looked(Place("s3a://lake/events", never).checks("table"))  # the store is gone
    assert {found["table"].verdict, found["table's files"].verdict} <= {WRONG, UNKNOWN}
