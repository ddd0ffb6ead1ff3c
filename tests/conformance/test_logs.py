"""Cursors, puts and pulls, by every way of signing and in every compression."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import ClassVar
from uuid import uuid4

from aliyun.log import LogClient, LogItem, PutLogsRequest
from aliyun.log.consumer import ConsumerProcessorBase, ConsumerWorker, CursorPosition, LogHubConfig

from airflow_provider_slshudi.sls import cursors
from airflow_provider_slshudi.sls.connection import SlsConnection
from tests.conformance.conftest import ENDPOINT, Refusal
from tests.local.sdk import log_group
from tests.waiting import until


def put(client: LogClient, project: str, logstore: str, values: list[str], kind: str | None, key: str = "") -> None:
    """One log group by `put_logs`, with one log per value."""
    items = [LogItem(timestamp=1_700_000_000, time_nano_part=5, contents=[("value", value)]) for value in values]
    request = PutLogsRequest(
        project, logstore, "topic", "10.0.0.9", items, hashKey=key or None, compress=bool(kind), logtags=[("host", "a")]
    )
    if kind:
        request.set_compress_type(kind)
    client.put_logs(request)


def test_cursors(client: LogClient, project: str, logstore: str, refused: Refusal) -> None:
    before = int(time.time())
    put(client, project, logstore, ["a"], "lz4")
    put(client, project, logstore, ["b"], "lz4")
    begin, end = (
        client.get_begin_cursor(project, logstore, 0).get_cursor(),
        client.get_end_cursor(project, logstore, 0).get_cursor(),
    )
    assert cursors.parse(end) == cursors.parse(begin) + 2
    assert client.get_cursor(project, logstore, 0, before - 1).get_cursor() == begin
    assert client.get_cursor(project, logstore, 0, "1 hour ago").get_cursor() == begin
    assert client.get_cursor(project, logstore, 0, before + 3600).get_cursor() == end
    assert abs(client.get_cursor_time(project, logstore, 0, begin).get_cursor_time() - before) < 60
    assert abs(client.get_previous_cursor_time(project, logstore, 0, end).get_cursor_time() - before) < 60
    assert abs(client.get_previous_cursor_time(project, logstore, 0, begin).get_cursor_time() - before) < 60
    beyond = cursors.text(cursors.parse(end) + 1)
    assert refused(lambda: client.get_cursor_time(project, logstore, 0, beyond)) == (400, "InvalidCursor")
    assert refused(lambda: client.pull_logs(project, logstore, 0, "no cursor")) == (400, "InvalidCursor")


def test_puts_come_back_in_pulls(client: LogClient, project: str, logstore: str, compression: str | None) -> None:
    put(client, project, logstore, ["v" * 500, "ü"], compression)
    put(client, project, logstore, ["keyed"], compression, key="7" * 32)
    client.put_log_raw(project, logstore, log_group(b"raw"), compress=compression is not None)
    begin = client.get_begin_cursor(project, logstore, 0).get_cursor()
    kind = {"compress": compression is not None, "accept_compress_type": compression}
    answer = client.pull_logs(project, logstore, 0, begin, count=2, **kind)
    assert (answer.get_loggroup_count(), answer.get_all_headers().get("x-log-compresstype")) == (2, compression)
    logs = answer.get_flatten_logs_json()
    assert [log["value"] for log in logs] == ["v" * 500, "ü", "keyed"]
    assert {(log["__topic__"], log["__source__"], log["__tag__:host"]) for log in logs} == {("topic", "10.0.0.9", "a")}
    end = cursors.text(cursors.parse(begin) + 1)
    one = client.pull_logs(project, logstore, 0, begin, end_cursor=end, **kind)
    assert (one.get_loggroup_count(), one.get_next_cursor()) == (1, end)
    pulls = list(client.pull_log(project, logstore, 0, "begin", "end", batch_size=1, **kind))
    assert [log["value"] for pull in pulls for log in pull.get_flatten_logs_json()] == ["v" * 500, "ü", "keyed", "raw"]
    last = client.pull_logs(project, logstore, 0, client.get_end_cursor(project, logstore, 0).get_cursor(), **kind)
    assert (last.get_loggroup_count(), last.get_raw_size()) == (0, 0)


def test_keys_choose_the_shard(client: LogClient, project: str, compression: str | None) -> None:
    client.create_logstore(project, "wide", shard_count=2)
    for key in ("0" * 32, "7" + "f" * 31, "8" + "0" * 31, "f" * 32):
        put(client, project, "wide", [key], compression, key)

    def values(shard: int) -> list[str]:
        pulls = client.pull_log(project, "wide", shard, "begin", "end")
        return [log["value"][0] for pull in pulls for log in pull.get_flatten_logs_json()]

    assert [values(0), values(1)] == [["0", "7"], ["8", "f"]]


def test_a_dump_holds_every_log(
    client: LogClient, project: str, logstore: str, compression: str | None, tmp_path: Path
) -> None:
    for number in range(5):
        put(client, project, logstore, [str(number)], compression)
    dumped = client.pull_log_dump(
        project, logstore, "begin", "end", str(tmp_path / "dump-{}"), batch_size=2, compress=compression is not None
    )
    assert dumped.get_body()["total_count"] == 5
    lines = [line for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    assert sorted(json.loads(line)["value"] for line in lines) == list("01234")


class Collect(ConsumerProcessorBase):  # type: ignore[misc]  # the SDK counts as untyped
    """Keeps the values of what the SDK's consumer hands over."""

    found: ClassVar[dict[str, list[str]]] = {}

    def __init__(self, run: str) -> None:
        super().__init__()
        self.values = self.found.setdefault(run, [])

    def process(self, log_groups: object, check_point_tracker: object) -> None:
        for group in log_groups.LogGroups:  # type: ignore[attr-defined]
            self.values += [content.Value for log in group.Logs for content in log.Contents]
        self.save_checkpoint(check_point_tracker)


def test_the_consumer_library_reads_every_log_once(
    client: LogClient, connection: SlsConnection, project: str, compression: str | None
) -> None:
    client.create_logstore(project, "wide", shard_count=2)
    for number in range(20):
        put(client, project, "wide", [str(number)], compression)
    run = uuid4().hex
    option = LogHubConfig(
        ENDPOINT,
        connection.access_key_id,
        connection.access_key_secret.reveal(),
        project,
        "wide",
        "group",
        "consumer",
        cursor_position=CursorPosition.BEGIN_CURSOR,
        heartbeat_interval=1,
        data_fetch_interval=0.1,
        security_token=connection.security_token.reveal() or None,
        auth_version=connection.auth_version,
        region=connection.region,
        accept_compress_type=compression,
    )
    worker = ConsumerWorker(Collect, option, args=(run,))
    worker.start()
    until("the consumer has 20 logs", lambda: len(Collect.found.get(run, [])) >= 20)
    worker.shutdown()
    worker.join(30)
    assert not any(thread is worker for thread in threading.enumerate())
    assert sorted(map(int, Collect.found[run])) == list(range(20))
    ends = [client.get_end_cursor(project, "wide", shard).get_cursor() for shard in (0, 1)]
    points = client.get_check_point(project, "wide", "group").get_consumer_group_check_points()
    assert [point["checkpoint"] for point in points] == ends
