"""What the service holds against what the table holds, log by log."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from aliyun.log import LogClient
from aliyun.log.log_logs_raw_pb2 import LogGroupListRaw

from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.sls import cursors
from airflow_provider_slshudi.storage import Storage
from tests.chaos.place import PROJECT, Line, Place
from tests.local.sdk import by_ip
from tests.machine import shard_ids


@dataclass
class Outcome:
    """Logs of the service without a row, rows too many, and whatever else is not as it should be."""

    logs: int = 0
    lost: int = 0
    doubled: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not (self.lost or self.doubled or self.wrong) and self.logs > 0

    def add(self, other: Outcome) -> None:
        self.logs += other.logs
        self.lost += other.lost
        self.doubled += other.doubled
        self.wrong += other.wrong


def prove(place: Place, line: Line, acknowledged: int) -> Outcome:
    """Compares one pipeline: the SDK's reading of the logstore, hudi-rs' of the table, and `slshudi verify`."""
    held = logs_of(by_ip(place.server.connection()), line.name)
    rows = rows_of(line)
    found = Outcome(logs=len(held))
    keys = Counter(key for key, _ in rows)
    found.lost = len(held.keys() - keys.keys())
    # A row that the service never held is one too many as well.
    found.doubled = sum(keys.values()) - len(held.keys() & keys.keys())
    other = [key for key, event in rows if held.get(key, event) != event]
    if other:
        found.wrong.append(f"{line.name}: {len(other)} rows hold another log than the service: {other[:5]}")
    absent = {f"event-{number}" for number in range(acknowledged)} - {event for _, event in rows}
    if absent:
        found.wrong.append(f"{line.name}: {len(absent)} acknowledged events have no row: {sorted(absent)[:5]}")
    if pending := Timeline.load(Storage(f"file://{line.table}")).pending():
        found.wrong.append(f"{line.name}: pending on the timeline: {pending}")
    if live := place.ledger.live(line.name):
        found.wrong.append(f"{line.name}: live in the ledger: {live}")
    code, report = place.slshudi("verify", line.name)
    if code != 0 or report["ok"] is not True or report["rows"] != len(held):
        found.wrong.append(f"{line.name}: slshudi verify ended with {code} for {len(held)} logs: {report}")
    return found


def logs_of(client: LogClient, logstore: str) -> dict[str, str]:
    """Row key and event id of every log that the logstore holds, as the official SDK reads them."""
    held: dict[str, str] = {}
    for shard in shard_ids(client, PROJECT, logstore):
        at = client.get_begin_cursor(PROJECT, logstore, shard).get_cursor()
        end = client.get_end_cursor(PROJECT, logstore, shard).get_cursor()
        while at != end:
            answer = client.pull_logs(PROJECT, logstore, shard, at, 1000, end)
            groups = LogGroupListRaw.FromString(answer._raw_uncompressed_body).LogGroups
            for cursor, group in enumerate(groups, cursors.parse(at)):
                for place, log in enumerate(group.Logs):
                    held[f"{shard}-{cursor}-{place}"] = _event_of(log)
            at = answer.get_next_cursor()
    return held


def _event_of(log: Any) -> str:
    return str(next(content.Value.decode() for content in log.Contents if content.Key == "event_id"))


def rows_of(line: Line) -> list[tuple[str, str]]:
    """Row key and event id of every row of the table, as hudi-rs reads it."""
    from hudi import HudiReadOptions, HudiTableBuilder

    table = HudiTableBuilder.from_base_uri(f"file://{line.table}").build()
    options = HudiReadOptions(projection=["_hoodie_record_key", "event_id"])
    rows: list[tuple[str, str]] = []
    for batch in table.read_stream(options):
        rows += zip(batch["_hoodie_record_key"].to_pylist(), batch["event_id"].to_pylist(), strict=True)
    return rows
