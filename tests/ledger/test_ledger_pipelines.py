"""Pipelines and their shards."""

from __future__ import annotations

import pytest

from airflow_provider_slshudi.exceptions import LedgerError, PipelineConflict
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import LedgerPipeline, LedgerShard

PIPELINE = "clicks"
SOURCE, TABLE = "sls://shop/clicks", "file:///lake/clicks"


def shard(id: int, first: int = 0, status: str = "readwrite") -> LedgerShard:
    return LedgerShard(id, status, "00" * 16, "ff" * 16, first)


def test_registering_again_is_fine(ledger: Ledger) -> None:
    ledger.register(PIPELINE, SOURCE, TABLE)
    ledger.register(PIPELINE, SOURCE, f"{TABLE}/")
    assert ledger.pipelines() == [LedgerPipeline(PIPELINE, SOURCE, TABLE)]


def test_a_table_belongs_to_one_pipeline(ledger: Ledger) -> None:
    with pytest.raises(PipelineConflict, match="belongs to pipeline clicks; pipeline views") as caught:
        ledger.register("views", "sls://shop/views", TABLE)
    assert (caught.value.pipeline, caught.value.other) == ("views", PIPELINE)


@pytest.mark.parametrize(("source", "table"), [("sls://shop/views", TABLE), (SOURCE, "file:///lake/views")])
def test_a_name_belongs_to_one_source_and_table(ledger: Ledger, source: str, table: str) -> None:
    with pytest.raises(PipelineConflict) as caught:
        ledger.register(PIPELINE, source, table)
    assert all(text in str(caught.value) for text in (SOURCE, TABLE, source, table))
    assert ledger.pipelines() == [LedgerPipeline(PIPELINE, SOURCE, TABLE)]


@pytest.mark.parametrize(
    ("name", "source", "table", "field"),
    [
        ("", SOURCE, "file:///a", "name"),
        ("n" * 251, SOURCE, "file:///a", "name"),
        ("n", "s" * 701, "file:///a", "source"),
        ("n", SOURCE, "t" * 701, "table"),
    ],
)
def test_names_that_do_not_fit_are_refused(ledger: Ledger, name: str, source: str, table: str, field: str) -> None:
    with pytest.raises(LedgerError, match=f"its {field} has"):
        ledger.register(name, source, table)


def test_shards_come_and_change_but_their_first_cursor_stays(ledger: Ledger) -> None:
    ledger.save_shards(PIPELINE, [shard(1, first=2**62), shard(0, first=5)])
    assert ledger.shards(PIPELINE) == [shard(0, first=5), shard(1, first=2**62)]
    ledger.save_shards(PIPELINE, [shard(0, first=99, status="readonly"), shard(2, first=7)])
    expected = [shard(0, first=5, status="readonly"), shard(1, first=2**62), shard(2, first=7)]
    assert ledger.shards(PIPELINE) == expected
    ledger.save_shards(PIPELINE, [])
    assert ledger.shards(PIPELINE) == expected
    assert ledger.density(PIPELINE) == {}


def test_shards_of_an_unknown_pipeline_are_refused(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="no pipeline nobody"):
        ledger.save_shards("nobody", [shard(0)])
    assert ledger.shards("nobody") == []
