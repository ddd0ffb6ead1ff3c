"""What the service holds against what the table holds, log by log."""

from __future__ import annotations

from typing import Any

from aliyun.log import LogClient

from airflow_provider_slshudi.config.load import load_pipeline
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.sls import cursors
from airflow_provider_slshudi.storage.files import Storage
from tests.chaos.place import PROJECT, Line, Place
from tests.exact import counts
from tests.exact.outcome import Outcome as Outcome
from tests.exact.outcome import compared
from tests.local.sdk import by_ip, groups_of
from tests.machine import shard_ids
from tests.readers.mirrors import Mirrors, mirror_faults

Log = dict[str, str]


def prove(place: Place, line: Line, acknowledged: int) -> Outcome:
    """Compares one pipeline: the SDK's reading of the logstore, hudi-rs' of the table, and `slshudi verify`."""
    held = logs_of(by_ip(place.server.connection()), line.name)
    found = _changes(line, held, acknowledged) if line.upserts else _events(line, held, acknowledged)
    if pending := Timeline.load(Storage(line.table)).pending():
        found.wrong.append(f"{line.name}: pending on the timeline: {pending}")
    if live := place.ledger.live(line.name):
        found.wrong.append(f"{line.name}: live in the ledger: {live}")
    if line.catalog:
        found.wrong += _mirrors(place, line)
    if line.upserts:
        # A row of the table tells of the newest log alone.
        committed = sum(batch.rows for batch in place.ledger.last(line.name, 100_000, State.COMMITTED))
        if committed != len(held):
            found.wrong.append(f"{line.name}: the ledger counts {committed} logs, the service {len(held)}")
    else:
        code, report = place.slshudi("verify", line.name)
        if code != 0 or report["ok"] is not True or report["rows"] != len(held):
            found.wrong.append(f"{line.name}: slshudi verify ended with {code} for {len(held)} logs: {report}")
    return found


def _mirrors(place: Place, line: Line) -> list[str]:
    """Where the mirrors, once a next run has followed, have other rows than the table."""
    mirrors, names = Mirrors(line.catalog), ("event_id", "ad_id")
    mirrors.follow(load_pipeline(place.home / "pipelines" / f"{line.name}.yaml"))
    return mirror_faults(Storage(line.table), line.name, mirrors.properties, names, rows_of(line, *names))


def _events(line: Line, held: dict[str, Log], acknowledged: int) -> Outcome:
    """A row for each log, under its place in the logstore."""
    events = {key: log["event_id"] for key, log in held.items()}
    rows = rows_of(line, "_hoodie_record_key", "event_id")
    found = compared(f"{line.name} by hudi-rs", (key for key, _ in rows), held)
    other = [key for key, event in rows if events.get(key, event) != event]
    if other:
        found.wrong.append(f"{line.name}: {len(other)} rows hold another log than the service: {other[:5]}")
    absent = {f"event-{number}" for number in range(acknowledged)} - {event for _, event in rows}
    if absent:
        found.wrong.append(f"{line.name}: {len(absent)} acknowledged events have no row: {sorted(absent)[:5]}")
    return found


def _changes(line: Line, held: dict[str, Log], acknowledged: int) -> Outcome:
    """A row for each customer, with the newest of its changes."""
    newest: dict[str, int] = {}
    for log in held.values():
        newest[log["id"]] = max(int(log["number"]), newest.get(log["id"], -1))
    rows = rows_of(line, "id", "number")
    found = Outcome(logs=len(held))
    numbers = dict(rows)
    found.lost = sum(numbers.get(id_, -1) < number for id_, number in newest.items())
    found.doubled = len(rows) - len(numbers) + sum(number > newest.get(id_, -1) for id_, number in numbers.items())
    absent = {*range(acknowledged)} - {int(log["number"]) for log in held.values()}
    if absent:
        found.wrong.append(f"{line.name}: the service does not hold {len(absent)} acknowledged logs")
    return found


def logs_of(client: LogClient, logstore: str) -> dict[str, Log]:
    """Row key and content of every log that the logstore holds, as the official SDK reads them."""
    held: dict[str, Log] = {}
    for shard in shard_ids(client, PROJECT, logstore):
        begin = cursors.parse(client.get_begin_cursor(PROJECT, logstore, shard).get_cursor())
        for cursor, group in enumerate(groups_of(client, PROJECT, logstore, shard), begin):
            for place, log in enumerate(group.Logs):
                held[f"{shard}-{cursor}-{place}"] = {item.Key: item.Value.decode() for item in log.Contents}
    return held


def rows_of(line: Line, *names: str) -> list[tuple[Any, ...]]:
    """Columns of every row of the table, as hudi-rs reads it."""
    return counts.rows_of(Storage(line.table), *names)
