"""One logstore over the SDK: what it answers, what it retries, and what it does not believe."""

from __future__ import annotations

import pickle
import socket
import time
from collections.abc import Callable

import pytest
from aliyun.log import LogClient

from airflow_provider_slshudi.exceptions import (
    ConfigError,
    CursorError,
    SourceCorrupt,
    SourceError,
    SourceRefused,
    SourceThrottled,
    SourceUnavailable,
)
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.sls import cursors
from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.sls.service import Compression, LogService, Shard
from tests.local.sdk import PROJECT, put
from tests.sls import disturbance
from tests.sls.disturbance import Change, Disturbed

Connect = Callable[[float], LogService]


def test_shards_are_listed_with_their_spans_and_states(service: LogService, client: LogClient) -> None:
    (only,) = service.shards()
    assert (only.id, only.status, only.hash_begin, only.hash_end) == (0, "readwrite", "0" * 32, "f" * 32)
    assert abs(only.created - time.time()) < 60
    client.split_shard(PROJECT, service.logstore, 0, "8" + "0" * 31)
    assert [(shard.id, shard.status) for shard in service.shards()] == [
        (0, "readonly"),
        (1, "readwrite"),
        (2, "readwrite"),
    ]
    assert service.shards()[1] == Shard(1, "readwrite", "0" * 32, "8" + "0" * 31, service.shards()[1].created)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_pull_carries_the_bytes_between_two_cursors(
    service: LogService, client: LogClient, compression: Compression
) -> None:
    service.compression = compression
    begin = service.begin(0)
    assert service.end(0) == begin
    for number in range(6):
        put(client, service.logstore, [b"%d" % number])
    assert service.end(0) == begin + 6
    pull = service.pull(0, begin + 1, begin + 4)
    assert (pull.shard, pull.begin, pull.next, pull.groups) == (0, begin + 1, begin + 4, 3)
    assert pull.raw_size == len(pull.body)
    assert service.pull(0, begin + 1, begin + 4, count=2).next == begin + 3
    assert service.pull(0, begin + 4, begin + 4).body == b""


def test_times_find_cursors(service: LogService, client: LogClient) -> None:
    put(client, service.logstore, [b"a"])
    now = int(time.time())
    assert service.at(0, now - 100) == service.begin(0)
    assert service.at(0, now + 100) == service.end(0)


def test_a_service_travels_to_another_process(service: LogService, client: LogClient) -> None:
    put(client, service.logstore, [b"a"])
    service.budget, service.compression = 7.0, "zstd"
    copy = pickle.loads(pickle.dumps(service))
    assert copy.end(0) == service.end(0)
    assert (copy.budget, copy.compression) == (7.0, "zstd")
    assert service.connection.access_key_secret not in repr(copy)


@pytest.mark.parametrize(
    "change",
    [
        disturbance.fault(500, "InternalServerError"),
        disturbance.fault(503, "ServerBusy"),
        disturbance.fault(403, "ShardReadQuotaExceed"),
        disturbance.fault(403, "SomeNewQuotaExceed"),
        disturbance.fault(429, "TooMany"),
        disturbance.page(502),
        disturbance.dropped,
        disturbance.cut,
    ],
)
def test_what_may_pass_is_tried_again(
    disturbed: Connect, way: Disturbed, client: LogClient, logstore: str, change: Change
) -> None:
    put(client, logstore, [b"a"])
    service = disturbed(20.0)
    begin = service.begin(0)
    way.changes += [change, change]
    assert service.pull(0, begin, begin + 1).groups == 1
    assert sum(way.at in path for path in way.seen) == 3


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (disturbance.fault(500, "InternalServerError"), SourceUnavailable),
        (disturbance.fault(403, "ReadQuotaExceed"), SourceThrottled),
        (disturbance.dropped, SourceUnavailable),
    ],
)
def test_trying_again_ends_with_the_budget(
    disturbed: Connect, way: Disturbed, change: Change, kind: type[SourceError]
) -> None:
    service = disturbed(1.0)
    begin = service.begin(0)
    way.changes += [change] * 50
    started = time.monotonic()
    with pytest.raises(kind) as error:
        service.pull(0, begin, begin)
    assert time.monotonic() - started < 1.5
    assert 2 <= sum(way.at in path for path in way.seen) <= 8  # with the SDK's own retries there would be ten a second
    assert (error.value.project, error.value.logstore) == (PROJECT, service.logstore)
    assert (error.value.shard, error.value.cursor) == (0, begin)
    assert error.value.code


def test_a_server_that_is_not_there_costs_the_budget_and_no_more(service: LogService) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        connection = SlsConnection(f"127.0.0.1:{nobody.getsockname()[1]}", "id", "secret")
        started = time.monotonic()
        with pytest.raises(SourceUnavailable) as error:
            LogService(connection, PROJECT, "logs", budget=0.5).shards()
    assert time.monotonic() - started < 3
    assert error.value.code == "LogRequestError"
    assert "secret" not in str(error.value)


def test_a_refusal_is_final_and_says_what_to_do(local_sls: LocalSls, service: LogService) -> None:
    there = service.connection
    wrong = SlsConnection(there.endpoint, there.access_key_id, "opensesame")
    started = time.monotonic()
    for refused, code, advice in (
        (lambda: LogService(wrong, PROJECT, service.logstore).shards(), "SignatureNotMatch", "access key secret"),
        (lambda: LogService(there, "no-project", service.logstore).shards(), "ProjectNotExist", "region"),
        (lambda: LogService(there, PROJECT, "no-logstore").shards(), "LogStoreNotExist", "logstore's name"),
        (lambda: service.begin(77), "ShardNotExist", "refresh the shards"),
        (lambda: service.pull(0, 2**62, 2**62), "InvalidCursor", "not of this shard"),
    ):
        with pytest.raises(SourceRefused, match=advice) as error:
            refused()
        assert error.value.code == code
        assert error.value.request_id
        assert "opensesame" not in str(error.value)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (disturbance.headers(x_log_bodyrawsize="99999"), "99999|cannot be read"),
        (disturbance.headers(x_log_count="2"), "2 log groups but the next cursor"),
        (disturbance.headers(x_log_count="0"), "0 log groups in"),
        (disturbance.headers(x_log_cursor=cursors.text(7)), "the next cursor 7"),
        (disturbance.headers(x_log_cursor=cursors.text(2**62)), "beyond the end"),
        (disturbance.headers(x_log_cursor="nonsense"), "no SLS cursor"),
        (disturbance.headers(x_log_cursor=None), "missing: X-Log-Cursor"),
        (disturbance.headers(x_log_compresstype="snappy"), "snappy"),
        (disturbance.garbled, "cannot be read"),
        (disturbance.page(200), "cannot be read"),
    ],
)
def test_an_answer_that_contradicts_itself_is_not_believed(
    disturbed: Connect, way: Disturbed, client: LogClient, logstore: str, change: Change, words: str
) -> None:
    put(client, logstore, [b"some bytes, some bytes, some bytes"])
    service = disturbed(20.0)
    begin = service.begin(0)
    way.changes.append(change)
    with pytest.raises(SourceCorrupt, match=words) as error:
        service.pull(0, begin, begin + 1)
    assert (error.value.shard, error.value.cursor) == (0, begin)
    assert service.pull(0, begin, begin + 1).groups == 1


def test_a_plain_body_of_another_size_than_announced_is_not_believed(
    disturbed: Connect, way: Disturbed, client: LogClient, logstore: str
) -> None:
    put(client, logstore, [b"a"])
    service = disturbed(5.0)
    begin = service.begin(0)
    way.changes.append(disturbance.headers(x_log_compresstype=None))
    with pytest.raises(SourceCorrupt, match="where x-log-bodyrawsize says"):
        service.pull(0, begin, begin + 1)


def test_arguments_that_make_no_sense_never_leave_the_machine(service: LogService) -> None:
    with pytest.raises(ValueError, match="cannot pull"):
        service.pull(0, 5, 4)
    with pytest.raises(ValueError, match="cannot pull"):
        service.pull(0, 4, 5, count=1001)
    with pytest.raises(CursorError):
        service.pull(0, -5, 4)
    for project, logstore in (("", "logs"), ("a/b", "logs"), ("project", "")):
        with pytest.raises(ConfigError):
            LogService(service.connection, project, logstore)
