"""What a person asks for is done, and the ledger keeps who asked, why, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from airflow_provider_slshudi.exceptions import ConfigError, DataExpired, IllegalTransition
from airflow_provider_slshudi.handover.names import Act
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import AuditEntry, State
from airflow_provider_slshudi.repair.actions import perform
from airflow_provider_slshudi.transaction import plan
from airflow_provider_slshudi.transaction.context import Run, Work
from airflow_provider_slshudi.transaction.settle import register
from tests.scenarios import PROJECT, Scenario

Make = Callable[..., Scenario]
NAME = "ad_events"


def nobody_knows(run: Run) -> None:
    """Airflow does not tell of any run."""


def deeds(pipeline: Scenario) -> list[AuditEntry]:
    return pipeline.work.ledger.audit_entries(NAME, 10)


def ask(
    pipeline: Scenario,
    act: Act,
    transaction: str | None = None,
    reason: str = "tired of waiting",
    run: str = "repair-1",
) -> str:
    return perform(pipeline.by(run), nobody_knows, act, "ada", reason, transaction)


def test_a_batch_that_is_named_is_recommitted(scenario: Make) -> None:
    pipeline = scenario()
    waiting = pipeline.prepare_next(0)
    done = ask(pipeline, Act.RECOVER, waiting.id)
    assert done == f"{waiting.id}: RECOMMIT"
    assert pipeline.work.ledger.get(waiting.id).state is State.COMMITTED
    (deed,) = deeds(pipeline)
    assert (deed.act, deed.who, deed.reason, deed.transaction, deed.result) == (
        *("recover", "ada", "tired of waiting", waiting.id),
        done,
    )
    assert ask(pipeline, Act.RECOVER, run="repair-2") == "nothing was left to decide"
    with pytest.raises(ConfigError, match="this run did it before"):
        ask(pipeline, Act.RECOVER, run="repair-2")


def test_a_batch_is_given_up_with_the_persons_name_in_its_history(scenario: Make) -> None:
    pipeline = scenario()
    waiting = pipeline.prepare_next(0)
    ask(pipeline, Act.ABANDON, waiting.id)
    assert pipeline.work.ledger.get(waiting.id).state is State.ABORTED
    assert any("tired of waiting (ada)" in event.detail for event in pipeline.work.ledger.events(waiting.id))
    assert plan.tail(pipeline.by("run-2")) is not None, "its ranges are read again"


def test_what_fails_is_kept_too(scenario: Make) -> None:
    pipeline = scenario()
    pipeline.prepare_next(0)
    with pytest.raises(IllegalTransition):
        ask(pipeline, Act.REBUILD_LEDGER)
    (deed,) = deeds(pipeline)
    assert deed.result is not None and deed.result.startswith("IllegalTransition: transaction ")


@pytest.mark.parametrize(
    ("act", "transaction", "reason", "said"),
    [
        (Act.RECOVER, None, "  ", "say why"),
        (Act.ABANDON, None, "because", "needs the id of a transaction"),
        (Act.ABANDON, "unheard-of", "because", "has no live transaction"),
    ],
)
def test_a_wrong_question_is_refused(scenario: Make, act: Act, transaction: str | None, reason: str, said: str) -> None:
    pipeline = scenario()
    register(pipeline.work)
    with pytest.raises(ConfigError, match=said):
        ask(pipeline, act, transaction, reason)


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (Act.BREAK_LEASE, "no run has a lease"),
        (Act.REBUILD_LEDGER, "1 committed transactions are in the ledger, 0 were rolled back"),
        (Act.REBUILD_METADATA, "the metadata table is as it should be"),
        (Act.REPLAY, "the quarantine never had a log"),
        (Act.ACCEPT_ERASED, "no change by another client waits to be accepted"),
    ],
)
def test_a_sound_pipeline_stays_as_it_is(scenario: Make, act: Act, said: str) -> None:
    pipeline = scenario()
    pipeline.put(100)
    pipeline.batch("run-1")
    assert ask(pipeline, act).startswith(said)
    assert next(deed.result for deed in deeds(pipeline)) is not None
    pipeline.put(50, first=100)
    assert pipeline.batch("run-2").rows == 50


def test_a_gap_is_accepted_for_one_batch_and_named_in_its_history(scenario: Make) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(100)
    assert plan.tail(pipeline.by("run-1")) is not None
    source = pipeline.work.pipeline.source
    pipeline.client.split_shard(PROJECT, source.logstore, 0, "8" + "0" * 31)
    pipeline.work.ledger.aborted(pipeline.work.ledger.live(NAME)[0].id, 1, "for a test")
    pipeline.client.delete_shard(PROJECT, source.logstore, 0)
    with pytest.raises(DataExpired):
        plan.tail(pipeline.by("run-2"))
    said = ask(pipeline, Act.ACCEPT_GAP, reason="the producer sends them again")
    assert said == "the next plan, within an hour, records as a gap what the service dropped"
    planned = plan.tail(pipeline.by("run-3"))
    assert planned is not None
    (gap,) = [item for item in pipeline.work.ledger.ranges(planned.id) if item.gap]
    assert (gap.shard, len(gap)) == (0, 10)
    (deed,) = deeds(pipeline)
    unknown = f"shard 0 is gone: what it got after cursor {gap.end} is not known"
    assert (deed.act, deed.who) == ("accept-gap", "ada")
    assert deed.result == f"planned as a gap: {gap}; {unknown}", "it was open at the last look"
    (told,) = [event for event in pipeline.work.ledger.events(planned.id) if event.what == "gap accepted"]
    assert str(gap) in told.detail and "the producer sends them again" in told.detail
    assert plan._consent(pipeline.work) is None, "one plan uses it"


def test_a_gap_that_was_accepted_long_ago_accepts_no_later_loss(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    perform(work, nobody_knows, Act.ACCEPT_GAP, "ada", "nobody needs them")
    assert plan._consent(work) is not None
    later = work.ledger.now() + timedelta(hours=1)
    monkeypatch.setattr(Ledger, "now", lambda self: later)
    assert plan._consent(work) is None
