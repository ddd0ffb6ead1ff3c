"""The matrix in short: the readers that come with the set-up, on one appended table; and that a lie does not pass."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from airflow_provider_slshudi.hudi.client.gateway import Gateway
from tests.readers import page, run
from tests.readers.__main__ import verdict
from tests.readers.cells import RIGHT, WRONG, Cell
from tests.readers.chinese import in_chinese
from tests.readers.mirrors import Mirrors
from tests.readers.readers import BUILT_IN, READERS, Services
from tests.readers.tables import FORMS, KINDS, VERSIONS, ReaderTable, can_be, make


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Services:
    return Services(f"sqlite:///{tmp_path_factory.mktemp('catalog') / 'catalog.db'}")


@pytest.fixture(scope="module")
def tables(gateway: Gateway, services: Services, tmp_path_factory: pytest.TempPathFactory) -> list[ReaderTable]:
    """An appended table of the newest version in each form."""
    folder = tmp_path_factory.mktemp("tables")
    [(_, forms)] = make(gateway, folder, ["append"], VERSIONS[-1:], Mirrors(services.database))
    return forms


def cells_of(keys: tuple[str, ...], tables: list[ReaderTable], services: Services) -> list[Cell]:
    return list(run.asked([reader for reader in READERS if reader.key in keys], tables, services))


def test_readers_of_the_set_up_are_right_on_an_appended_table(tables: list[ReaderTable], services: Services) -> None:
    cells = cells_of(BUILT_IN, tables, services)
    assert {cell.table.form for cell in cells} == set(FORMS)
    assert {(cell.reader, cell.table.form): run.told(cell) for cell in cells if cell.kind != RIGHT} == {}
    assert verdict(cells, 0, len(BUILT_IN)) == 0


def test_a_row_or_a_value_that_the_model_has_otherwise_is_wrong_and_ends_the_run_with_1(
    tables: list[ReaderTable], services: Services, capsys: pytest.CaptureFixture[str]
) -> None:
    table = next(one for one in tables if one.form == "hudi")
    dropped = replace(table, rows=table.rows[1:])
    changed = replace(table, rows=[{**table.rows[0], "total": 12}, *table.rows[1:]])
    cells = cells_of(("hudi-rs",), [dropped, changed], services)
    assert [cell.kind for cell in cells] == [WRONG, WRONG]
    assert [one.query for one in cells[0].differences][:2] == ["count", "rows"]
    assert [one.query for one in cells[1].differences] == ["values of total"]
    for cell in cells:
        assert verdict([cell], 0, 0) == 1
    assert "without a known fault: hudi-rs, hudi, v9_append: values of total" in capsys.readouterr().out


def test_the_chinese_page_says_what_the_english_one_does() -> None:
    written = page.in_chinese_of(page.PAGE).read_text(encoding="utf-8")
    assert written == in_chinese(page.PAGE.read_text(encoding="utf-8"))
    assert not re.findall(r"Wrong: .*", written), "faults without a translation"


def test_the_page_has_the_readers_and_the_kinds_of_tables_of_the_program() -> None:
    written = page.PAGE.read_text(encoding="utf-8")
    for section, form in page.sections(VERSIONS):
        body = written.split(f"## {section}\n", 1)[1].split("\n## ", 1)[0]
        rows = [line for line in body.splitlines() if line.startswith("|")]
        titles = [re.split(r" \| ", line.strip("| "))[0] for line in rows[2:]]
        assert titles == [reader.title for reader in READERS if form in reader.forms]
        version = int(section.rpartition(" ")[2]) if form == "hudi" else VERSIONS[-1]
        able = [kind for name, kind in KINDS.items() if can_be(name, version)]
        kinds = [kind.title for kind in able if form == "hudi" or kind.mirrored]
        assert rows[0].strip("| ").split(" | ") == ["reader", *kinds]
