"""The engines that `slshudi init` knows read what it makes for them, as the runs behind docs/engines.md showed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_provider_slshudi.cli.engines import ENGINES, Choice, chosen

PAGE = Path(__file__).parents[1] / "docs" / "engines.md"
READERS = {
    "spark": "Spark 3.5, Hudi 1.2.0",
    "spark-hudi-1.0": "Spark 3.5, Hudi 1.0.2",
    "spark-hudi-0.15": "Spark 3.5, Hudi 0.15.0",
    "spark-iceberg": "Spark 3.5, Iceberg 1.10.1",
    "hudi-rs": "hudi-rs 0.5.0",
    "datafusion": "DataFusion 54, hudi-rs 0.5.0",
    "trino": "Trino 476",
    "pyiceberg": "pyiceberg",
    "deltalake": "deltalake",
    "duckdb": "DuckDB 1.5.5",
    "polars": "Polars",
    "ray": "Ray",
    "daft": "Daft",
}


def cells(form: str) -> dict[str, str]:
    """By reader, what it made of appended tables of a form."""
    [part] = re.findall(rf"^## {form}\n(.*?)^## ", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    rows = [[cell.strip() for cell in line.split("|")] for line in part.splitlines() if line.startswith("|")]
    assert rows[0][2] == "appended"
    return {row[1]: row[2] for row in rows[2:]}


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_reads_what_is_made_for_it(engine: str) -> None:
    choice = chosen([engine])
    forms = {"iceberg": "Iceberg mirrors", "delta": "Delta mirrors"}
    [form] = [forms[each] for each in choice.mirrors] or [f"Hudi tables of version {choice.version or 9}"]
    assert [cell for reader, cell in cells(form).items() if reader.startswith(READERS[engine])] == ["right"]


@pytest.mark.parametrize(
    ("engines", "expected"),
    [
        (("spark", "hudi-rs"), (None, set())),
        (("spark", "trino"), (6, set())),
        (("trino", "pyiceberg", "spark-hudi-1.0"), (8, {"iceberg"})),
        (("polars", "duckdb"), (None, {"delta"})),
        (("polars", "pyiceberg", "daft"), (None, {"iceberg", "delta"})),
    ],
)
def test_several_engines_get_the_fewest_forms(engines: tuple[str, ...], expected: tuple[int | None, set[str]]) -> None:
    assert chosen(engines) == Choice(*expected)


def test_engines_get_no_form_that_the_table_cannot_have_or_that_they_read_wrongly() -> None:
    assert chosen(["polars", "trino"], ["iceberg"]) == Choice(None, {"iceberg"})
    assert chosen(["trino"], by_value=True) == Choice(None, {"iceberg"})
    with pytest.raises(ValueError, match="daft reads no mirror"):
        chosen(["spark", "daft"], ["iceberg"])
