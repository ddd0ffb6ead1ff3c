"""Keys that no column names, as people see them."""

from __future__ import annotations

from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.views.findings import new_keys, unnamed
from tests.pipelines import ad_events
from tests.seen import planned, registered


def test_new_keys_are_those_first_seen_since_a_time_each_once(ledger: Ledger) -> None:
    for name in ("clicks", "views"):
        registered(ledger, name)
    one, other = (planned(ledger, name, [Range(0, 0, 10)], "run-1") for name in ("clicks", "views"))
    ledger.save_new_keys("clicks", one.id, 512, {"city": 3}, {"city": ["Ulm"]}, set())
    asked = ledger.now()
    ledger.save_new_keys("clicks", one.id, 512, {"city": 3, "zip": 500}, {"zip": ["89073", "53111"]}, set())
    ledger.save_new_keys("views", other.id, 512, {"city": 4}, {}, set())
    assert [(key.pipeline, key.key) for key in new_keys(ledger, asked)] == [("views", "city"), ("clicks", "zip")]
    (zip_,) = new_keys(ledger, asked, ["clicks"])
    assert zip_.told == "'zip' in 500 of 512 logs looked at, like '89073', '53111'"
    assert new_keys(ledger, ledger.now()) == []


def test_keys_that_the_file_names_by_now_are_left_out(ledger: Ledger) -> None:
    registered(ledger, "ad_events")
    one = planned(ledger, "ad_events", [Range(0, 0, 10)], "run-1")
    ledger.save_new_keys("ad_events", one.id, 512, {"city": 3, "ts": 1}, {}, set())
    pipeline = ad_events("file:///t", rest_column=None)
    assert all(key in pipeline.named_keys for key in ("event_id", "ts", "price", "clicks"))
    assert [key.key for key in unnamed(ledger, "ad_events", pipeline.named_keys)] == ["city"]
    assert len(unnamed(ledger, "ad_events")) == 2
    kept = ad_events("file:///t").named_keys
    assert [kept.kept_in(key.key) for key in unnamed(ledger, "ad_events", kept)] == ["rest"]
