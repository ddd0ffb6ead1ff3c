"""The sensors behind a table: what they wait for, without a slot, and what they leave to the task behind them."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)

from airflow_provider_slshudi import (
    SlsHudiChangesOperator,
    SlsHudiChangesSensor,
    SlsHudiPartitionSensor,
    SlsHudiPartitionsOperator,
)
from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.ledger.records import Feed
from tests.airflow.operators.runs import in_run
from tests.commits import HOUR, T0, Committing, hour
from tests.machine import write_hourly

RUN = ("reports", "run-1")


def changes(**arguments: Any) -> SlsHudiChangesSensor:
    given = {"task_id": "wait", "pipeline": "ad_events", "consumer": "report", **arguments}
    return SlsHudiChangesSensor(**given)


def partition(**arguments: Any) -> SlsHudiPartitionSensor:
    return SlsHudiPartitionSensor(task_id="wait", pipeline="ad_events", **arguments)


def is_over(sensor: Any) -> bool:
    try:
        sensor.execute(in_run(RUN))
    except AirflowRescheduleException:
        return False
    return True


def complete(hourly: Committing, until: int) -> None:
    """Completes all hours until so many seconds."""
    hourly.look(until + 300)
    SlsHudiPartitionsOperator(task_id="partitions", pipeline="ad_events").execute(in_run(RUN))


def test_it_waits_until_there_is_something_that_was_not_confirmed(hourly: Committing) -> None:
    assert not is_over(changes())
    hourly.commit(0)
    assert is_over(changes())
    taken = SlsHudiChangesOperator(task_id="take", pipeline="ad_events", consumer="report").execute(in_run(RUN))
    assert is_over(changes()), "it is given again"
    hourly.ledger.confirm("ad_events", "report", taken["last"], taken["nonce"])
    assert not is_over(changes())


def test_one_that_starts_at_the_end_counts_from_the_first_look(hourly: Committing) -> None:
    hourly.commit(0)
    assert not is_over(changes(start="end"))
    hourly.commit(0)
    assert is_over(changes(start="end"))


def test_it_waits_for_partitions_too(hourly: Committing) -> None:
    hourly.commit(0)
    assert not is_over(changes(of="partitions"))
    complete(hourly, HOUR)
    assert is_over(changes(of="partitions"))


def test_a_deferrable_one_waits_in_the_triggerer_until_its_time_is_over(hourly: Committing) -> None:
    with pytest.raises(TaskDeferred) as deferred:
        changes(deferrable=True, timeout=100).execute(in_run(RUN))
    path, arguments = deferred.value.trigger.serialize()
    assert path == "airflow_provider_slshudi.triggers.ledger.ChangesTrigger"
    seconds = arguments.pop("seconds")
    assert arguments == {"ledger_conn_id": "slshudi_ledger", "pipeline": "ad_events", "consumer": "report"}
    assert 95 < seconds <= 100
    assert hourly.ledger.consumer("ad_events", "report") is not None, "the trigger makes none"
    with pytest.raises(AirflowSensorTimeout):
        changes(deferrable=True, timeout=100).wake(in_run(RUN), time.time() - 101)


def test_a_ledger_that_does_not_answer_is_asked_again(hourly: Committing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SLSHUDI_LEDGER")
    assert not is_over(changes())
    assert not is_over(partition(partition=hour(0)))


def test_a_partition_is_awaited_until_it_is_complete_and_again_after_late_logs(hourly: Committing) -> None:
    assert not is_over(partition(partition=hour(0)))
    hourly.commit(0, rows=4)
    assert not is_over(partition(partition=hour(0)))
    complete(hourly, HOUR)
    answer = {"partition": hour(0), "times": 1, "rows": 4, "gaps": 0}
    assert partition(partition=hour(0)).poke(in_run(RUN)).xcom_value == answer
    hourly.commit(0)
    hourly.look(HOUR + 400, unread=1)
    with pytest.raises(AirflowSkipException):
        SlsHudiPartitionsOperator(task_id="partitions", pipeline="ad_events").execute(in_run(RUN))
    assert not is_over(partition(partition=hour(0)))
    complete(hourly, HOUR + 100)
    assert partition(partition=hour(0)).poke(in_run(RUN)).xcom_value == {**answer, "times": 2, "rows": 5}


@pytest.mark.parametrize(
    "time", ["2026-01-01T00:59:59Z", "2026-01-01 08:30:00+08:00", datetime(2026, 1, 1, tzinfo=timezone.utc)]
)
def test_a_time_names_the_partition_that_holds_it(hourly: Committing, time: str | datetime) -> None:
    hourly.commit(0)
    complete(hourly, HOUR)
    answer = partition(time=time).poke(in_run(RUN)).xcom_value
    assert answer is not None and answer["partition"] == hour(0)


def test_a_deferrable_one_tells_the_trigger_which_partition(hourly: Committing) -> None:
    with pytest.raises(TaskDeferred) as deferred:
        partition(partition=hour(3), deferrable=True).execute(in_run(RUN))
    path, arguments = deferred.value.trigger.serialize()
    assert path == "airflow_provider_slshudi.triggers.ledger.PartitionTrigger"
    assert (arguments["pipeline"], arguments["begin"]) == ("ad_events", T0 + 3 * HOUR)


def test_one_that_is_never_complete_fails_at_once(hourly: Committing, pipelines: Path) -> None:
    described = {"connection": "sls_default", "project": "ads", "logstore": "events", "start": T0 + 60}
    write_hourly(pipelines / "ad_events.yaml", pipelines.parent / "lake" / "ad_events", source=described)
    hourly.commit(0, 1)
    complete(hourly, 2 * HOUR)
    assert is_over(partition(partition=hour(1)))
    with pytest.raises(AirflowFailException, match=f"{hour(0)} of pipeline ad_events began before the first log"):
        partition(partition=hour(0)).execute(in_run(RUN))
    assert hourly.ledger.newest("ad_events", Feed.PARTITIONS) == 1


def test_one_from_before_the_pipeline_fails_without_a_log_too(hourly: Committing, pipelines: Path) -> None:
    before = datetime.fromtimestamp(T0 - 1, timezone.utc)
    assert not is_over(partition(time=before)), "the pipeline reads from the first log on, and a late one may come"
    described = {"connection": "sls_default", "project": "ads", "logstore": "events", "start": T0}
    write_hourly(pipelines / "ad_events.yaml", pipelines.parent / "lake" / "ad_events", source=described)
    with pytest.raises(AirflowFailException, match="2025-12-31-23 of pipeline ad_events began before the first log"):
        partition(time=before).execute(in_run(RUN))
    assert not is_over(partition(partition=hour(0)))


@pytest.mark.parametrize(
    "arguments",
    [{}, {"partition": hour(0), "time": "2026-01-01T00:00:00Z"}, {"partition": "2026-01-01"}, {"time": "x"}],
)
def test_what_names_no_partition_is_refused_at_once(hourly: Committing, arguments: dict[str, str]) -> None:
    with pytest.raises(AirflowFailException, match="task wait: "):
        partition(**arguments).execute(in_run(RUN))


def test_a_wrong_start_is_refused_where_the_dag_is_made() -> None:
    with pytest.raises(ConfigError, match="expected begin or end"):
        changes(start="now")
