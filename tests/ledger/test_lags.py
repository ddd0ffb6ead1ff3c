"""How far consumers are behind: what they have not confirmed, and since when it is there."""

from __future__ import annotations

from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Feed
from airflow_provider_slshudi.planning.periods import Periods
from airflow_provider_slshudi.planning.ranges import Range
from tests.seen import committed, looked, registered

HOURS = ("2026-01-31-08", "2026-01-31-09", "2026-01-31-10")


def test_a_consumer_is_behind_by_what_it_has_not_confirmed_since_the_first_of_it_is_there(ledger: Ledger) -> None:
    registered(ledger, "views")
    registered(ledger, "clicks")
    for name, of in (("all", Feed.COMMITS), ("hourly", Feed.PARTITIONS), ("idle", Feed.COMMITS)):
        ledger.subscribe("clicks", name, of, 0, 60)
    assert [(item.behind, item.since) for item in ledger.lags()] == [(0, None)] * 3
    batches = [
        committed(ledger, "clicks", [Range(0, at * 10, at * 10 + 10)], f"run-{at}", partitions={f"hour={value}": 1})
        for at, value in enumerate(HOURS)
    ]
    committed(ledger, "views", [Range(0, 0, 10)], "run-1")  # another pipeline's counts for nothing
    later = 1_800_000_000
    looked(ledger, "clicks", later, {0: 30})
    ledger.fold("clicks", Periods("hour"), "hour=", 0, None, [])
    last = ledger.newest("clicks", Feed.PARTITIONS)
    taken = ledger.take("clicks", "all", 1, "|dag/run-1")
    assert taken is not None and taken.nonce is not None
    ledger.confirm("clicks", "all", 1, taken.nonce)
    ledger.move("clicks", "idle", None)
    completed = ledger.completions("clicks", 0, 1)[0].at
    assert [(item.consumer.name, item.behind, item.since) for item in ledger.lags("clicks")] == [
        ("all", 2, batches[1].changed),
        ("hourly", last, completed),
        ("idle", 0, None),
    ]
    assert ledger.lags("views") == []


def test_who_took_something_is_told_by_airflow_dag_and_run(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    ledger.subscribe("clicks", "all", Feed.COMMITS, 0, 60)
    committed(ledger, "clicks", [Range(0, 0, 10)], "run-1")
    taken = ledger.take("clicks", "all", 1, "east|hourly/manual__2026-01-31T00:00:00+00:00/x")
    assert taken is not None and taken.run == ("east", "hourly", "manual__2026-01-31T00:00:00+00:00/x")
