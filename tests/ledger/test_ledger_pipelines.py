"""Pipelines and their shards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_provider_slshudi.exceptions import Fenced, LedgerError, PipelineConflict
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import GONE, Kind, LedgerPipeline, LedgerShard, State, Transaction
from airflow_provider_slshudi.planning.ranges import Range

PIPELINE = "clicks"
SOURCE, TABLE = "sls://shop/clicks", "file:///lake/clicks"


def shard(id: int, first: int = 0, status: str = "readwrite") -> LedgerShard:
    return LedgerShard(id, status, "00" * 16, "ff" * 16, first)


def test_registering_again_is_fine(ledger: Ledger) -> None:
    ledger.register(PIPELINE, SOURCE, TABLE)
    ledger.register(PIPELINE, SOURCE, f"{TABLE}/")
    assert ledger.pipelines() == [LedgerPipeline(PIPELINE, SOURCE, TABLE)]


def begin(ledger: Ledger) -> Transaction:
    return ledger.begin(PIPELINE, Kind.TAIL, [Range(0, 0, 10)], "dag", "run")


def test_a_table_belongs_to_one_pipeline(ledger: Ledger) -> None:
    begin(ledger)
    with pytest.raises(PipelineConflict, match="belongs to pipeline clicks; pipeline views") as caught:
        ledger.register("views", "sls://shop/views", TABLE)
    assert (caught.value.pipeline, caught.value.other) == ("views", PIPELINE)


CHANGED = [("sls://shop/views", TABLE), (SOURCE, "file:///lake/views")]


@pytest.mark.parametrize(("source", "table"), CHANGED)
def test_a_name_belongs_to_one_source_and_table_once_something_was_written(
    ledger: Ledger, source: str, table: str
) -> None:
    ledger.opened(begin(ledger).id, 1, "instant")
    for ask in (ledger.register, ledger.require):
        with pytest.raises(PipelineConflict) as caught:
            ask(PIPELINE, source, table)
        assert all(text in str(caught.value) for text in (SOURCE, TABLE, source, table))
    assert ledger.pipelines() == [LedgerPipeline(PIPELINE, SOURCE, TABLE)]


@pytest.mark.parametrize(("source", "table"), CHANGED)
def test_a_pipeline_that_was_refused_may_be_corrected(ledger: Ledger, source: str, table: str) -> None:
    ledger.save_shards(PIPELINE, [shard(0, first=5)])
    given_up = begin(ledger)
    ledger.aborted(given_up.id, 1, "refused")
    planned = begin(ledger)
    with pytest.raises(PipelineConflict):
        ledger.require(PIPELINE, source, table)
    ledger.register(PIPELINE, source, table)
    ledger.require(PIPELINE, source, table)
    assert ledger.pipelines() == [LedgerPipeline(PIPELINE, source, table)]
    assert ledger.get(planned.id).state is State.ABORTED
    with pytest.raises(Fenced):
        ledger.opened(planned.id, 1, "instant")
    assert [found.first for found in ledger.shards(PIPELINE)] == ([5] if source == SOURCE else [])


def test_a_pipeline_may_get_further_logstores_and_gives_none_up(ledger: Ledger) -> None:
    ledger.save_shards(PIPELINE, [shard(0, first=5)])
    ledger.opened(begin(ledger).id, 1, "instant")
    more = f"{SOURCE} sls://shop/views"
    ledger.require(PIPELINE, more, TABLE)
    assert ledger.pipelines() == [LedgerPipeline(PIPELINE, SOURCE, TABLE)], "a step that goes on changes nothing"
    ledger.register(PIPELINE, more, TABLE)
    assert ledger.pipelines() == [LedgerPipeline(PIPELINE, more, TABLE)]
    assert [found.first for found in ledger.shards(PIPELINE)] == [5]
    for fewer in (SOURCE, f"sls://shop/views {SOURCE}", f"{SOURCE} sls://shop/orders"):
        for ask in (ledger.register, ledger.require):
            with pytest.raises(PipelineConflict, match="further logstores may follow the present ones"):
                ask(PIPELINE, fewer, TABLE)
    assert ledger.pipelines() == [LedgerPipeline(PIPELINE, more, TABLE)]


def test_further_logstores_forget_nothing_of_a_pipeline_that_wrote_nothing_yet(ledger: Ledger) -> None:
    ledger.save_shards(PIPELINE, [shard(0, first=5)])
    planned = begin(ledger)
    ledger.register(PIPELINE, f"{SOURCE} sls://shop/views", TABLE)
    assert [found.first for found in ledger.shards(PIPELINE)] == [5]
    assert ledger.get(planned.id).state is State.PLANNED


def test_a_name_that_was_refused_leaves_its_table_to_the_corrected_one(ledger: Ledger) -> None:
    given_up = begin(ledger)
    ledger.aborted(given_up.id, 1, "refused")
    ledger.register("views", SOURCE, TABLE)
    assert ledger.pipelines() == [LedgerPipeline("views", SOURCE, TABLE)]
    with ledger.lease("views", "me"), ledger.service_lease("views", "me"):
        pass


def test_a_table_that_another_pipeline_writes_is_not_to_be_had_by_a_correction(ledger: Ledger) -> None:
    ledger.opened(begin(ledger).id, 1, "instant")
    ledger.register("views", "sls://shop/views", "file:///lake/views")
    with pytest.raises(PipelineConflict, match="belongs to pipeline clicks"):
        ledger.register("views", "sls://shop/views", TABLE)
    assert LedgerPipeline("views", "sls://shop/views", "file:///lake/views") in ledger.pipelines()


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


def test_where_a_shard_ended_is_kept_and_goes_by_the_status_that_was_seen_with_it(ledger: Ledger) -> None:
    def seen(status: str, end: int | None) -> LedgerShard:
        ledger.save_shards(PIPELINE, [replace(shard(0, status=status), end=end)])
        return ledger.shards(PIPELINE)[0]

    assert [seen("readwrite", 2**62), seen("readonly", None)] == [
        replace(shard(0), end=2**62),
        shard(0, status="readonly"),
    ]
    assert [found.end_known for found in (seen("readwrite", 7), seen("readonly", 9), seen(GONE, None))] == [
        False,
        True,
        True,
    ]


def test_shards_of_an_unknown_pipeline_are_refused(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="no pipeline nobody"):
        ledger.save_shards("nobody", [shard(0)])
    assert ledger.shards("nobody") == []
