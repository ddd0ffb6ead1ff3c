"""What doctor sees of the watermark, and of consumers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_slshudi.doctor.downstream import Downstream
from airflow_provider_slshudi.doctor.finding import Verdict
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Feed, LedgerShard
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.planning.watermark import Mark
from tests.ledger.commits import PIPELINE, commit
from tests.ledgers import ledger_in

OK, WARNING, WRONG, UNKNOWN = Verdict


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with ledger_in(tmp_path / "ledger.db") as ledger:
        ledger.register(PIPELINE, "sls://shop/clicks", "file:///lake/clicks")
        yield ledger


def looks(ledger: Ledger) -> Downstream:
    return Downstream(PIPELINE, lambda: ledger)


def look(ledger: Ledger, hours_ago: float, end: int) -> None:
    at = int(ledger.now().timestamp() - 3_600 * hours_ago)
    ledger.save_shards(PIPELINE, [LedgerShard(0, "readwrite", "", "", 0, end)])
    ledger.save_look(PIPELINE, at, {0: [Mark(end, at)]})


def test_a_watermark_that_moves_is_well_and_one_that_stands_is_told(ledger: Ledger) -> None:
    seen = looks(ledger).watermark()
    assert (seen.verdict, "since `lateness` was declared" in seen.what) == (UNKNOWN, True)
    look(ledger, 3, 10)
    seen = looks(ledger).watermark()
    assert (seen.verdict, "it is not known until when" in seen.what) == (WARNING, True)
    commit(ledger, [Range(0, 0, 10)])
    assert looks(ledger).watermark().verdict is OK
    look(ledger, 0, 20)
    seen = looks(ledger).watermark()
    assert (seen.verdict, "No partition that ended since is complete" in seen.what) == (WARNING, True)
    assert seen.mend == "`slshudi lag clicks` tells which shard is behind"
    commit(ledger, [Range(0, 10, 20)])
    assert looks(ledger).watermark().verdict is OK


def test_a_pipeline_that_has_not_looked_for_a_day_is_told(ledger: Ledger) -> None:
    look(ledger, 25, 0)
    seen = looks(ledger).watermark()
    assert (seen.verdict, "is paused" in seen.mend) == (WARNING, True)


def test_a_consumer_that_is_near_the_end_of_its_hold_is_told(ledger: Ledger) -> None:
    assert looks(ledger).consumers().what == "there is none"
    ledger.subscribe(PIPELINE, "report", Feed.COMMITS, 0, 100)
    ledger.subscribe(PIPELINE, "hourly", Feed.PARTITIONS, 0, 0)
    commit(ledger)
    assert looks(ledger).consumers().verdict is OK
    ledger.subscribe(PIPELINE, "report", Feed.COMMITS, 0, 0)
    seen = looks(ledger).consumers()
    assert seen.verdict is WARNING
    assert seen.what.startswith("consumer report has not confirmed the commit of place 1, of ")


def test_only_a_pipeline_with_a_lateness_has_a_watermark(ledger: Ledger) -> None:
    assert [check.name for check in looks(ledger).checks(has_lateness=True)] == ["watermark", "consumers"]
    assert [check.name for check in looks(ledger).checks(has_lateness=False)] == ["consumers"]


def test_a_ledger_that_cannot_be_asked_or_is_not_there_yet(ledger: Ledger) -> None:
    def refuses() -> Ledger:
        raise LookupError("the ledger cannot be asked")

    assert Downstream(PIPELINE, refuses).consumers().verdict is UNKNOWN
    assert Downstream(PIPELINE, lambda: None).watermark().verdict is OK
