"""Keys that no column names: the first sighting of each is kept, and told once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from datetime import timedelta

from sqlalchemy import Engine, update

from airflow_provider_slshudi.ledger import models
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.new_keys import FORGOTTEN, MOST
from airflow_provider_slshudi.ledger.records import Kind, StartPositions, Transaction, UnnamedCount, UnnamedKey
from airflow_provider_slshudi.planning.ranges import Range
from tests.ledger.test_concurrency import ROUNDS, WORKERS, race
from tests.ledger.test_growth import counted

PIPELINE = "clicks"
COLUMNS = frozenset({"id"})


def batch(ledger: Ledger, number: int = 0, pipeline: str = PIPELINE) -> Transaction:
    return ledger.begin(pipeline, Kind.TAIL, [Range(0, number, number + 1)], "dag", f"run-{number}")


def saw(ledger: Ledger, of: Transaction, logs: dict[str, int], named: Container[str] = COLUMNS) -> list[UnnamedKey]:
    examples = {key: [f"{key} of {of.run_id}"] for key in logs}
    return ledger.save_new_keys(of.pipeline, of.id, 100, logs, examples, named)


def test_a_key_is_told_once_and_counted_on(ledger: Ledger) -> None:
    first, second = batch(ledger, 0), batch(ledger, 1)
    told = saw(ledger, first, {"city": 40, "zip": 2})
    assert [(key.key, key.logs, key.looked, key.examples) for key in told] == [
        ("city", 40, 100, ["city of run-0"]),
        ("zip", 2, 100, ["zip of run-0"]),
    ]
    (event,) = [event for event in ledger.events(first.id) if event.what == "new keys"]
    assert event.detail == "'city' in 40 of 100 logs looked at; 'zip' in 2 of 100 logs looked at"

    (new,) = saw(ledger, second, {"city": 5, "street": 1})
    assert new.key == "street"
    kept = {key.key: key for key in ledger.unnamed_keys([PIPELINE])}
    assert list(kept) == ["street", "city", "zip"], "the newest first"
    city = kept["city"]
    assert (city.logs, city.looked, city.transaction, city.examples) == (45, 200, first.id, ["city of run-0"])
    assert city.first == told[0].first < city.last == new.first
    assert (kept["zip"].looked, kept["zip"].last) == (100, told[1].first), "the second batch did not see it"
    assert saw(ledger, second, {}) == saw(ledger, second, {"city": 1}) == []


def test_what_was_first_seen_since_a_time(ledger: Ledger) -> None:
    (old,) = saw(ledger, batch(ledger, 0), {"city": 1})
    ledger.register("views", "sls://shop/views", "file:///lake/views")
    (new,) = saw(ledger, batch(ledger, 0, "views"), {"city": 1})
    assert ledger.unnamed_keys(since=new.first) == [new]
    assert ledger.unnamed_keys([PIPELINE], new.first) == []
    assert ledger.unnamed_keys() == [new, old]
    assert ledger.unnamed_keys([]) == []


def test_a_key_that_a_column_names_by_now_is_forgotten_and_told_again_later(ledger: Ledger) -> None:
    one = batch(ledger)
    saw(ledger, one, {"city": 1, "zip": 1})
    assert saw(ledger, one, {"city": 1}, COLUMNS | {"city"}) == []
    assert [key.key for key in ledger.unnamed_keys([PIPELINE])] == ["zip"]
    assert [key.key for key in saw(ledger, one, {"city": 1})] == ["city"]


def test_columns_that_name_all_forget_all(ledger: Ledger) -> None:
    one = batch(ledger)
    saw(ledger, one, {"city": 1, "zip": 1})
    assert saw(ledger, one, {}, named={"city", "zip"}) == []
    assert ledger.unnamed_keys() == []


def test_a_key_that_another_column_keeps_is_told_with_it_and_as_dropped_once_it_is(ledger: Ledger) -> None:
    one = batch(ledger)
    of_batch = PIPELINE, one.id, 100
    keys = ledger.save_new_keys(*of_batch, {"city": 1, "a $.b": 1}, {}, COLUMNS, kept_in={"city": "rest"})
    assert {key.key: key.fate for key in keys} == {"city": "so it goes to `rest`", "a $.b": "so it is dropped"}
    assert ledger.save_new_keys(*of_batch, {"city": 1}, {}, COLUMNS) == [], "it was told before"
    assert {key.key: key.kept_in for key in ledger.unnamed_keys()} == {"city": None, "a $.b": None}


def test_texts_that_databases_take_for_one_are_two_and_any_text_is_kept(ledger: Ledger) -> None:
    keys = ["a", "a ", "A", "ä", "", "nul\0", "x" * 200, "x" * 199 + "y", "🐘" * 200]
    one = batch(ledger)
    assert len(saw(ledger, one, dict.fromkeys(keys, 1))) == len(keys)
    assert saw(ledger, one, dict.fromkeys(keys, 1)) == []
    assert {key.key: key.logs for key in ledger.unnamed_keys()} == {key.replace("\0", "\ufffd"): 2 for key in keys}


def test_random_keys_cannot_fill_the_ledger(ledger: Ledger, engine: Engine) -> None:
    one = batch(ledger)
    assert len(saw(ledger, one, {f"k{number}": 1 for number in range(MOST + 5)})) == MOST
    assert saw(ledger, one, {"late": 9, "k0": 1}) == [], "neither kept nor told"
    assert len(ledger.unnamed_keys()) == MOST

    # Two that nobody has seen for long make room for one; what this very batch sees stays.
    table, past = models.unnamed_keys, ledger.now() - FORGOTTEN
    for key, at in (("k1", past - timedelta(hours=2)), ("k2", past - timedelta(hours=1)), ("k3", past)):
        with engine.begin() as connection:
            connection.execute(update(table).where(table.c["key"] == key).values(last=at))
    assert [key.key for key in saw(ledger, one, {"late": 9, "k1": 1})] == ["late"]
    kept = {key.key for key in ledger.unnamed_keys()}
    assert len(kept) == MOST and "k2" not in kept and {"late", "k1", "k3"} <= kept


def test_the_event_of_many_new_keys_is_short(ledger: Ledger) -> None:
    one = batch(ledger)
    saw(ledger, one, {f"k{number}": 1 for number in range(200)})
    (event,) = [event for event in ledger.events(one.id) if event.what == "new keys"]
    assert event.detail.count("looked at") == 20 and event.detail.endswith("; and 180 more")


def test_keys_cost_as_many_statements_whatever_their_number_and_mostly_none_is_written(
    engine: Engine, ledger: Ledger
) -> None:
    one = batch(ledger)
    costs = []
    for count in (5, 200, 5, 200):
        with counted(engine) as sent:
            saw(ledger, one, {f"k{number}": 1 for number in range(count)})
        costs.append(len(sent))
    # An event is written where some are new.
    assert costs[2] == costs[3] == min(costs), costs
    assert costs[0] == costs[1]
    every_key = {f"k{number}" for number in range(200)}
    saw(ledger, one, {}, named=every_key)
    with counted(engine) as sent:
        saw(ledger, one, {})
        saw(ledger, one, {}, named=every_key)
    assert not [statement for statement, _ in sent if statement.split()[0] in ("INSERT", "UPDATE", "DELETE")]
    assert not [statement for statement, _ in sent if "FOR UPDATE" in statement]


def test_how_many_there_are_is_told_with_the_standing(ledger: Ledger) -> None:
    def told() -> UnnamedCount | None:
        (standing,) = ledger.standings(1, ledger.now(), [PIPELINE])
        return standing.unnamed

    assert told() is None
    one = batch(ledger)
    saw(ledger, one, {"city": 1})
    (newest,) = saw(ledger, one, {"zip": 1})
    assert told() == UnnamedCount(2, newest.first)


def test_a_pipeline_that_is_corrected_or_forgotten_takes_its_keys_with_it(ledger: Ledger) -> None:
    ledger.register("click", "sls://shop/click", "file:///lake/click")
    saw(ledger, batch(ledger, 0, "click"), {"city": 1})
    ledger.register("click", "sls://shop/klick", "file:///lake/click")
    assert ledger.unnamed_keys() == [], "they were another logstore's"
    one = batch(ledger, 1, "click")
    saw(ledger, one, {"city": 1})
    ledger.aborted(one.id, 1, "for a test")
    ledger.register("klick", "sls://shop/klick", "file:///lake/click")
    assert ledger.unnamed_keys() == []


def see(ledger: Ledger, number: int, turn: int) -> str:
    found = {f"key-{turn}": 1, "known": 1}
    return f"told {len(ledger.save_new_keys(PIPELINE, ledger.live(PIPELINE)[0].id, 10, found, {}, COLUMNS))}"


def test_of_those_who_see_a_new_key_at_once_one_tells_it_and_all_count(ledger: Ledger, url: str) -> None:
    saw(ledger, batch(ledger), {"known": 1})
    assert race(url, see) == [Counter({"told 1": 1, "told 0": WORKERS - 1})] * ROUNDS
    kept = {key.key: key.logs for key in ledger.unnamed_keys()}
    assert kept.pop("known") == 1 + WORKERS * ROUNDS
    assert set(kept.values()) == {WORKERS} and len(kept) == ROUNDS


def test_a_rebuild_of_the_ledger_keeps_them(ledger: Ledger) -> None:
    one = batch(ledger)
    saw(ledger, one, {"city": 1})
    ledger.aborted(one.id, 1, "for a test")
    ledger.rebuild(PIPELINE, [], StartPositions())
    assert [key.key for key in ledger.unnamed_keys()] == ["city"]
