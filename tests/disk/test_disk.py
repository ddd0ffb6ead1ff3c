"""The short form of `make disks`: a few acts on full disks, and a few files that are cut off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.disk.acts import ACTS, Act
from tests.disk.cuts import Cut, after_power_loss
from tests.exact.troubles.disk import on_full_disk
from tests.needs import needs_root
from tests.worlds.place import Places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, needs_root]


@pytest.fixture(scope="module")
def places(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    made = Places(tmp_path_factory.mktemp("d"), spark)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("name", "pages"),
    [("append-open", 1), ("append-append", 3), ("append-commit", 15), ("append-commit", 28), ("append-cluster", 9)],
)
def test_an_act_on_a_full_disk_is_done_once_there_is_space(places: Places, name: str, pages: int) -> None:
    ended, enough = on_full_disk(places, ACTS[name], pages)
    assert not enough and ended.ok, str(ended)


def test_an_act_whose_ledger_has_no_space_is_done_once_there_is(places: Places) -> None:
    ended, enough = on_full_disk(places, ACTS["append-record"], 0, ledger_disk=True)
    assert not enough and ended.ok, str(ended)


@pytest.mark.parametrize(
    ("name", "cut"),
    [
        ("append-open", Cut(0, 0.3, noted=False, summed=True)),
        ("append-append", Cut(0, 0.99, noted=True, summed=False)),
        ("append-commit", Cut(1, 0.0, noted=False, summed=False)),
        # A base file of the metadata table, which its rollback compacts.
        ("append-settle-after-append", Cut(2, 0.4, noted=False, summed=False)),
    ],
)
def test_a_file_that_was_cut_off_costs_no_row(places: Places, name: str, cut: Cut) -> None:
    ended = after_power_loss(places, ACTS[name], cut)
    assert ended is not None and ended.ok, str(ended)


def test_every_step_of_every_kind_of_table_is_an_act() -> None:
    assert len(ACTS) == 38
    assert all(isinstance(act, Act) for act in ACTS.values())
