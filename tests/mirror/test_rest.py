"""A mirror in an Iceberg REST catalog, by HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.mirror.conftest import TABLE, Mirrored
from tests.mirror.rest import RestCatalog, rest_catalog
from tests.mirror.test_follow import rows
from tests.mirror.test_mending import _appended, _deleted, _taken_back


@pytest.fixture
def served(mirrored: Callable[..., Mirrored]) -> Iterator[tuple[Mirrored, RestCatalog]]:
    table = mirrored(keep=2)
    with rest_catalog(**table.catalog) as server:
        table.catalog.clear()
        table.catalog |= {"type": "rest", "uri": server.address, "name": "elsewhere"}
        yield table, server


def test_it_follows_and_a_lost_answer_doubles_nothing(served: tuple[Mirrored, RestCatalog]) -> None:
    table, server = served
    first = table.made.append(rows("a", 1), rows("b", 2))
    server.lost = 1
    table.follow()
    table.require([*rows("a", 1), *rows("b", 2)])
    assert len(table.iceberg.metadata.snapshots) == 1
    expected = rows("b", 2)
    for number in range(6):
        server.lost = number % 2
        first[0] = table.made.update(first[0], rows("a", number))
        table.made.append(rows("c", number))
        table.follow()
        expected += rows("c", number)
        table.require([*expected, *rows("a", number)])
    assert len(table.iceberg.metadata.snapshots) <= 4


@pytest.mark.parametrize("mess", [_appended, _deleted, _taken_back])
def test_what_another_client_did_is_taken_back(
    served: tuple[Mirrored, RestCatalog], mess: Callable[[Mirrored], object]
) -> None:
    table, _ = served
    table.made.append(rows("a", 1))
    table.follow()
    table.made.append(rows("a", 2))
    table.follow()
    mess(table)
    table.made.append(rows("b", 3))
    table.follow()
    table.require([*rows("a", 1, 2), *rows("b", 3)])


def test_a_table_that_was_dropped_is_made_anew(served: tuple[Mirrored, RestCatalog]) -> None:
    table, _ = served
    table.made.append(rows("a", 1))
    table.follow()
    table.iceberg.catalog.drop_table(TABLE)
    table.follow()
    table.require(rows("a", 1))
