"""Mirrors of a table in an object store, whose Delta log relies on puts that refuse to replace a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from airflow_provider_slshudi.mirror.delta import DeltaMirror
from tests.mirror.conftest import Mirrored
from tests.mirror.tables import counted
from tests.mirror.test_follow import rows
from tests.services import s3_store


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, str]]:
    with s3_store("lake") as environment:
        yield environment


def test_mirrors_beside_a_table_in_s3(
    mirrored: Callable[..., Mirrored], store: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in store.items():
        monkeypatch.setenv(name, value)
    by = {"by": "field", "column": "day"}
    table = mirrored(table={"path": "s3a://lake/tables/events", "name": "events", "partition": by})
    table.catalog["s3.endpoint"] = store["AWS_ENDPOINT_URL"]
    first = table.made.append(rows("a/b", 1), rows("c d", 2))
    table.follow()
    table.made.update(first[0], rows("a/b", 1, 3))
    table.follow()
    table.made.append(rows(None, 4))
    assert {name: len(done.instants) for name, done in table.follow().items()} == {"iceberg": 1, "delta": 1}
    expected = counted([*rows("a/b", 1, 3), *rows("c d", 2), *rows(None, 4)])
    for reader, seen in table.read_by_clients().items():
        assert counted(seen) == expected, reader


def test_of_two_delta_runs_at_once_in_s3_one_looks_again(
    mirrored: Callable[..., Mirrored], store: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in store.items():
        monkeypatch.setenv(name, value)
    flat = {"path": "s3a://lake/tables/flat", "name": "flat"}
    table = mirrored(table=flat, mirror={"delta": {}})
    table.made.append(rows("a", 1))
    table.follow()
    table.made.append(rows("a", 2))
    real = DeltaMirror.apply

    def after_another_run(*args: object) -> None:
        monkeypatch.setattr(DeltaMirror, "apply", real)
        table.follow()
        real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(DeltaMirror, "apply", after_another_run)
    assert table.follow()["delta"].instants == ()
    from deltalake import DeltaTable

    seen = DeltaTable(table.made.storage.uri, storage_options={"aws_allow_http": "true"}).to_pyarrow_table()
    assert counted(seen.to_pylist()) == counted(rows("a", 1, 2))
