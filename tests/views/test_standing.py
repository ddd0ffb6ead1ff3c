"""How pipelines stand: who is behind, and who needs a person."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import BacklogSample
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.views.standing import Need, pipelines, view_of
from tests.seen import GROUP, committed, planned, registered, saw

DAY = 86_400


def test_a_pipeline_that_read_all_is_behind_by_at_most_the_time_since_the_last_look(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    saw(ledger, "clicks", unread=100, since=50, seconds_ago=40)
    committed(ledger, "clicks", [Range(0, 0, 100)], "run-1", last_time=1_700_000_123)
    (view,) = pipelines(ledger)
    assert view.lag is not None and view.lag.seconds is not None
    assert (view.need, view.lag.groups, view.lag.bytes, view.lag.expires) == (Need.NOTHING, 0, 0, None)
    assert 40 <= view.lag.seconds < 60
    assert view.fresh == 1_700_000_123


def test_what_is_unread_is_measured_and_expires(ledger: Ledger) -> None:
    registered(ledger, "clicks", shards=2)
    committed(ledger, "clicks", [Range(0, 0, 40), Range(1, 0, 100)], "run-1")
    saw(ledger, "clicks", unread=60, since=600, kept=DAY, shards=2)
    (view,) = pipelines(ledger)
    assert view.lag is not None and view.lag.seconds is not None and view.lag.expires is not None
    assert (view.lag.groups, view.lag.bytes) == (60, 60 * GROUP)
    assert 600 <= view.lag.seconds < 620
    assert DAY - 620 < view.lag.expires <= DAY - 600
    assert view.need is Need.NOTHING


def test_an_age_that_one_shard_does_not_tell_is_not_known(ledger: Ledger) -> None:
    registered(ledger, "clicks", shards=2)
    saw(ledger, "clicks", unread=200, since=600, kept=DAY, shards=1)  # of shard 0 alone
    (view,) = pipelines(ledger)
    assert view.lag is not None
    assert (view.lag.groups, view.lag.seconds, view.lag.expires) == (200, None, None)
    assert view.lag.bytes is None, "no batch has shown how large log groups are"


def test_those_who_need_a_person_come_first(ledger: Ledger) -> None:
    for name in ("a-well", "b-waits", "c-expires", "d-stopped", "e-new", "f-expires-sooner"):
        registered(ledger, name)
    for name in ("a-well", "b-waits", "d-stopped"):
        saw(ledger, name, unread=0)
        committed(ledger, name, [Range(0, 0, 100)], "run-1")
    for name, since in (("c-expires", 80_000), ("f-expires-sooner", 86_000)):
        saw(ledger, name, unread=100, since=since, kept=DAY)
    ledger.note_trouble("b-waits", "b_tail", "run-2", "settle", "LeaseHeld", "somebody decides", waits=True)
    ledger.note_trouble("d-stopped", "d_tail", "run-2", "plan", "DataExpired", "gone", waits=False)
    found = [(view.name, view.need) for view in pipelines(ledger)]
    assert found == [
        ("d-stopped", Need.LOOK),
        ("f-expires-sooner", Need.EXPIRES),
        ("c-expires", Need.EXPIRES),
        ("b-waits", Need.WAITS),
        ("a-well", Need.NOTHING),
        ("e-new", Need.UNKNOWN),
    ]


def test_a_pipeline_that_failed_before_it_was_registered_is_seen(ledger: Ledger) -> None:
    ledger.note_trouble("clicks", "clicks_tail", "run-1", "settle", "TableDenied", "another user's table", waits=False)
    (view,) = pipelines(ledger)
    assert (view.name, view.need, view.source) == ("clicks", Need.LOOK, "")
    assert view.why == "clicks_tail failed at settle: TableDenied"


def test_a_trouble_counts_up_and_ends_with_the_steps_success(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    for run in ("run-1", "run-2"):
        ledger.note_trouble("clicks", "clicks_tail", run, "append", "JobFailed", f"driver of {run}", waits=False)
    ledger.note_trouble("clicks", "clicks_backfill", "run-3", "append", "JobFailed", "another DAG", waits=False)
    first, other = ledger.troubles("clicks")
    assert (first.times, first.run_id, first.message) == (2, "run-2", "driver of run-2")
    assert first.since <= first.at
    ledger.clear_troubles("clicks", "clicks_tail", "append")
    assert ledger.troubles("clicks") == [other]


def test_a_commit_that_settle_finished_is_no_trouble_any_more(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    done = committed(ledger, "clicks", [Range(0, 0, 10)], "run-1")
    given_up = planned(ledger, "clicks", [Range(0, 10, 20)], "run-2")
    ledger.aborted(given_up.id, 1, "for a test")
    for step, of in (("commit", done), ("record", given_up)):
        ledger.note_trouble("clicks", "clicks_tail", "run-x", step, "Oops", "no", waits=False, transaction=of.id)
    ledger.clear_troubles("clicks", "clicks_tail", "settle")
    assert [trouble.step for trouble in ledger.troubles("clicks")] == ["record"], (
        "its ranges are read again, and may fail"
    )


def test_rates_are_those_of_the_last_hour(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    for seconds_ago, came in ((7_200, 9_999), (600, 500), (300, 60), (0, 240)):
        saw(ledger, "clicks", unread=0, came=came, seconds_ago=seconds_ago)
    (view,) = pipelines(ledger)
    assert view.rates.came is not None
    assert abs(view.rates.came - 300 * GROUP / 600) < 1, "what the first look found came before"
    assert view.rates.committed is None
    assert len(view.curve) == 3


def test_names_choose(ledger: Ledger) -> None:
    for name in ("clicks", "views"):
        registered(ledger, name)
    assert [view.name for view in pipelines(ledger, ["views", "unheard-of"])] == ["views"]


def test_a_curve_has_one_unit(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    unknown = BacklogSample(ledger.now() - timedelta(minutes=9), None, None, 70, None, None, None)
    ledger.save_backlog_sample("clicks", unknown, {})
    saw(ledger, "clicks", unread=60)
    (view,) = pipelines(ledger)
    assert view.curve == [70, 60], "log groups, since nobody knew bytes at first"


def test_a_pipeline_that_nobody_runs_any_more_is_not_well(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    saw(ledger, "clicks", unread=0, kept=DAY, seconds_ago=20 * 3_600)
    committed(ledger, "clicks", [Range(0, 0, 100)], "run-1")
    (view,) = pipelines(ledger)
    assert view.lag is not None and view.lag.expires is not None
    assert view.need is Need.EXPIRES and view.lag.expires < 4 * 3_600, "what came since the look may expire by then"


def test_a_step_that_waits_for_long_and_batches_given_up_in_vain_need_a_person(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    saw(ledger, "clicks", unread=100)
    for at in range(3):
        given_up = planned(ledger, "clicks", [Range(0, at, at + 1)], f"run-{at}")
        ledger.aborted(given_up.id, 1, "killed")
    (view,) = pipelines(ledger)
    assert (view.need, view.why) == (Need.LOOK, "the last 3 batches were all given up, the newest: killed")
    committed(ledger, "clicks", [Range(0, 0, 100)], "run-9")
    ledger.note_trouble("clicks", "clicks_tail", "run-10", "settle", "TimelineUnreadable", "no mount", waits=True)
    (standing,) = ledger.standings(10, ledger.now() - timedelta(hours=1))
    later = replace(standing, now=standing.now + timedelta(minutes=11))
    assert (view_of(standing).need, view_of(later).need) == (Need.WAITS, Need.LOOK)


def test_a_look_by_a_clock_that_was_ahead_is_no_look(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    saw(ledger, "clicks", unread=0, seconds_ago=-72_000)
    assert pipelines(ledger)[0].lag is None
    saw(ledger, "clicks", unread=100)
    assert len(ledger.backlog_samples("clicks", 10)) == 1, "the next look takes its place"


def test_a_pipeline_that_was_only_looked_at_may_get_another_name(ledger: Ledger) -> None:
    registered(ledger, "click")
    saw(ledger, "click", unread=0)
    ledger.note_trouble("click", "click_tail", "run-1", "plan", "DataExpired", "gone", waits=False)
    ledger.register("clicks", "sls://ads/click", "file:///lake/click")
    assert [view.name for view in pipelines(ledger)] == ["clicks"]


def test_failures_are_dismissed(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    ledger.note_trouble("clicks", "clicks_old", "run-1", "append", "JobFailed", "gone", waits=False)
    assert [found.dag_id for found in ledger.dismiss("clicks")] == ["clicks_old"]
    assert ledger.troubles() == []
