"""What the real SDK sees of the server: projects, logstores, shards, puts, pulls, and the service's errors."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aliyun.log import LogClient, LogException, LogItem, PutLogsRequest

from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.sls import cursors
from airflow_provider_slshudi.sls.connection import AuthVersion
from airflow_provider_slshudi.system.secrets import Secret
from tests.local.sdk import PROJECT, by_ip, by_name, log_group, make_logstore, put, values_of


def refused(call: Callable[[], Any]) -> tuple[int, str]:
    with pytest.raises(LogException) as error:
        call()
    assert error.value.get_request_id()
    return error.value.get_resp_status(), error.value.get_error_code()


@pytest.mark.parametrize("auth_version", ["v1", "v4"])
@pytest.mark.parametrize("way", ["proxy", "address"])
def test_puts_come_back_over_both_ways_and_signatures(
    local_sls: LocalSls, monkeypatch: pytest.MonkeyPatch, way: str, auth_version: AuthVersion
) -> None:
    connection = local_sls.connection(auth_version)
    if way == "proxy":
        monkeypatch.setenv("http_proxy", f"http://{local_sls.endpoint}")
        monkeypatch.setenv("no_proxy", "")
        client = by_name("cn-local.log.aliyuncs.com", connection)
    else:
        client = by_ip(connection)
    logstore = make_logstore(client, f"{way}-{auth_version}")
    item = LogItem(timestamp=1_700_000_000, time_nano_part=7, contents=[("key", "wert ü"), ("raw", b"\xff")])
    client.put_logs(PutLogsRequest(PROJECT, logstore, "topic", "10.0.0.9", [item], logtags=[("host", "a")]))
    (answer,) = client.pull_log(PROJECT, logstore, 0, "begin", "end")
    (log,) = answer.get_flatten_logs_json(decode_bytes=False)
    assert log["__time__"] == 1_700_000_000
    assert (log["__topic__"], log["__source__"], log["__tag__:host"]) == ("topic", "10.0.0.9", "a")
    assert log["key"] in ("wert ü", "wert ü".encode())
    assert log["raw"] == b"\xff"


def test_projects_are_made_listed_and_deleted(client: LogClient) -> None:
    client.create_project("other-project", "words")
    assert client.get_project("other-project").get_description() == "words"
    assert refused(lambda: client.create_project("other-project", "")) == (400, "ProjectAlreadyExist")
    listed = client.list_project(project_name_pattern="other")
    assert (listed.get_total(), [project["projectName"] for project in listed.get_projects()]) == (1, ["other-project"])
    make_logstore(client, "kept")
    client.create_logstore("other-project", "kept", shard_count=1)
    client.delete_project("other-project")
    assert refused(lambda: client.get_project("other-project")) == (404, "ProjectNotExist")
    assert client.get_logstore(PROJECT, "kept").shard_count == 1


def test_logstores_are_made_changed_listed_and_deleted(client: LogClient) -> None:
    name = make_logstore(client, "settings", shards=3)
    assert refused(lambda: client.create_logstore(PROJECT, name)) == (400, "LogStoreAlreadyExist")
    client.update_logstore(PROJECT, name, ttl=90)
    described = client.get_logstore(PROJECT, name)
    assert (described.ttl, described.shard_count, described.auto_split) == (90, 3, True)
    assert client.list_logstore(PROJECT, "setting").get_logstores() == [name]
    client.delete_logstore(PROJECT, name)
    assert refused(lambda: client.get_logstore(PROJECT, name)) == (404, "LogStoreNotExist")
    make_logstore(client, name)
    assert values_of(client, name, 0) == []


@pytest.mark.parametrize("name", ["", "..", "Upper", "a/b", "x" * 64])
def test_names_that_are_no_names_are_refused(client: LogClient, name: str) -> None:
    assert refused(lambda: client.create_logstore(PROJECT, name)) in [(400, "ParameterInvalid")]


def test_a_pull_stops_at_its_end_cursor_and_at_its_count(client: LogClient, logstore: str) -> None:
    for number in range(12):
        put(client, logstore, [b"%d" % number])
    begin = cursors.parse(client.get_begin_cursor(PROJECT, logstore, 0).get_cursor())
    assert cursors.parse(client.get_end_cursor(PROJECT, logstore, 0).get_cursor()) == begin + 12

    def pull(start: int, count: int, end: int | None) -> tuple[int, int]:
        stop = None if end is None else cursors.text(begin + end)
        answer = client.pull_logs(PROJECT, logstore, 0, cursors.text(begin + start), count, stop)
        return answer.get_loggroup_count(), cursors.parse(answer.get_next_cursor()) - begin

    assert pull(0, 5, None) == (5, 5)
    assert pull(3, 1000, 7) == (4, 7)
    assert pull(3, 2, 7) == (2, 5)
    assert pull(7, 10, 7) == (0, 7)
    assert pull(10, 10, 99) == (2, 12)
    assert pull(12, 10, None) == (0, 12)


def test_a_pull_is_bounded_in_bytes_but_never_empty(client: LogClient, logstore: str) -> None:
    large = b"x" * 4_000_000
    for _ in range(3):
        put(client, logstore, [large])
    begin = client.get_begin_cursor(PROJECT, logstore, 0).get_cursor()
    answer = client.pull_logs(PROJECT, logstore, 0, begin)
    assert answer.get_loggroup_count() == 2
    assert client.pull_logs(PROJECT, logstore, 0, answer.get_next_cursor()).get_loggroup_count() == 1


@pytest.mark.parametrize("accepted", ["lz4", "zstd", None])
def test_bodies_travel_compressed_as_asked(client: LogClient, logstore: str, accepted: str | None) -> None:
    put(client, logstore, [b"a" * 1000, b"b"])
    begin = client.get_begin_cursor(PROJECT, logstore, 0).get_cursor()
    answer = client.pull_logs(PROJECT, logstore, 0, begin, compress=accepted is not None, accept_compress_type=accepted)
    assert answer.get_all_headers().get("x-log-compresstype") == accepted
    assert len(answer._raw_uncompressed_body) == answer.get_raw_size() > 1000
    assert [log["value"] for log in answer.get_flatten_logs_json()] == ["a" * 1000, "b"]


@pytest.mark.parametrize("compress_type", ["lz4", "zstd", None])
def test_puts_are_taken_in_every_compression(client: LogClient, logstore: str, compress_type: str | None) -> None:
    item = LogItem(timestamp=1, contents=[("value", "v" * 100)])
    request = PutLogsRequest(PROJECT, logstore, "", "s", [item], compress=compress_type is not None)
    request.set_compress_type(compress_type)
    client.put_logs(request)
    assert values_of(client, logstore, 0) == [[b"v" * 100]]


def test_cursors_of_times_are_by_receipt_not_by_log_time(client: LogClient, logstore: str) -> None:
    put(client, logstore, [b"old"])
    time.sleep(2.1 - time.time() % 1)
    middle = int(time.time())
    put(client, logstore, [b"new"])
    begin = cursors.parse(client.get_begin_cursor(PROJECT, logstore, 0).get_cursor())

    def at(seconds: int) -> int:
        return cursors.parse(client.get_cursor(PROJECT, logstore, 0, seconds).get_cursor()) - begin

    assert [at(0), at(middle), at(middle + 1000)] == [0, 1, 2]
    received = client.get_cursor_time(PROJECT, logstore, 0, cursors.text(begin)).get_cursor_time()
    assert middle - 4 <= received < middle


def test_puts_without_a_key_rotate_and_keys_have_one_shard(client: LogClient) -> None:
    logstore = make_logstore(client, "rotation", shards=4)
    for number in range(8):
        put(client, logstore, [b"%d" % number])
    assert [len(values_of(client, logstore, shard)) for shard in range(4)] == [2, 2, 2, 2]
    spans = client.list_shards(PROJECT, logstore).get_shards_info()
    for number in range(20):
        key = "f" * 32 if number == 0 else hashlib.md5(b"%d" % number, usedforsecurity=False).hexdigest()
        item = LogItem(timestamp=1, contents=[("value", key)])
        client.put_logs(PutLogsRequest(PROJECT, logstore, "", "s", [item], hashKey=key))
    for span in spans:
        keyed = values_of(client, logstore, span["shardID"])[2:]
        last = span["exclusiveEndKey"] == "f" * 32
        assert keyed
        for (found,) in keyed:
            assert span["inclusiveBeginKey"] <= found.decode() < span["exclusiveEndKey"] or last


def test_split_and_merge_close_shards_that_stay_readable(client: LogClient, logstore: str) -> None:
    put(client, logstore, [b"before"])
    half = "8" + "0" * 31
    split = client.split_shard(PROJECT, logstore, 0, half).get_shards_info()
    assert [(shard["shardID"], shard["status"]) for shard in split] == [
        (0, "readonly"),
        (1, "readwrite"),
        (2, "readwrite"),
    ]
    assert [(shard["inclusiveBeginKey"], shard["exclusiveEndKey"]) for shard in split[1:]] == [
        ("0" * 32, half),
        (half, "f" * 32),
    ]
    for number in range(4):
        put(client, logstore, [b"%d" % number])
    assert values_of(client, logstore, 0) == [[b"before"]]
    assert [len(values_of(client, logstore, shard)) for shard in (1, 2)] == [2, 2]
    assert refused(lambda: client.split_shard(PROJECT, logstore, 0, half)) == (400, "ParameterInvalid")
    assert refused(lambda: client.split_shard(PROJECT, logstore, 1, half)) == (400, "ParameterInvalid")
    assert refused(lambda: client.merge_shard(PROJECT, logstore, 2)) == (400, "ParameterInvalid")
    merged = client.merge_shard(PROJECT, logstore, 1).get_shards_info()
    assert [(shard["shardID"], shard["status"]) for shard in merged] == [
        (3, "readwrite"),
        (1, "readonly"),
        (2, "readonly"),
    ]
    put(client, logstore, [b"after"])
    assert values_of(client, logstore, 3) == [[b"after"]]
    assert client.get_logstore(PROJECT, logstore).shard_count == 1


def test_wrong_requests_get_the_services_errors(client: LogClient, logstore: str) -> None:
    begin = client.get_begin_cursor(PROJECT, logstore, 0).get_cursor()
    beyond = cursors.text(cursors.parse(begin) + 1)
    cases: dict[tuple[int, str], list[Callable[[], Any]]] = {
        (404, "ProjectNotExist"): [lambda: client.list_shards("no-project", logstore)],
        (404, "LogStoreNotExist"): [lambda: client.list_shards(PROJECT, "no-logstore")],
        (400, "ShardNotExist"): [lambda: client.get_begin_cursor(PROJECT, logstore, 9)],
        (400, "InvalidCursor"): [
            lambda: client.pull_logs(PROJECT, logstore, 0, "no cursor"),
            lambda: client.pull_logs(PROJECT, logstore, 0, beyond),
        ],
        (400, "ParameterInvalid"): [
            lambda: client.pull_logs(PROJECT, logstore, 0, begin, count=1001),
            lambda: client.pull_logs(PROJECT, logstore, 0, begin, query="* | where a = 1"),
            lambda: client.get_begin_cursor(PROJECT, logstore, "first"),
        ],
        (405, "InvalidMethod"): [lambda: client.get_index_config(PROJECT, logstore)],
        (404, "ConsumerGroupNotExist"): [lambda: client.get_check_point(PROJECT, logstore, "none-such")],
        (413, "PostBodyTooLarge"): [lambda: client.put_log_raw(PROJECT, logstore, log_group(b"x" * 10_485_760))],
    }
    for expected, calls in cases.items():
        for call in calls:
            assert refused(call) == expected


def test_a_body_that_is_no_log_group_is_refused_and_not_kept(client: LogClient, logstore: str) -> None:
    class Broken:
        def SerializeToString(self) -> bytes:
            return b"\x0a\x05abc"

    assert refused(lambda: client.put_log_raw(PROJECT, logstore, Broken())) == (400, "PostBodyInvalid")
    assert values_of(client, logstore, 0) == []


def test_a_wrong_secret_key_or_token_is_refused(tmp_path: Path) -> None:
    with LocalSls(tmp_path, access_key_id="key", access_key_secret="right", security_token="token") as server:
        good = server.connection()
        by_ip(good).list_project()

        def answer(**changes: str | Secret) -> tuple[int, str]:
            fields = {name: getattr(good, name) for name in good.__slots__}
            return refused(by_ip(type(good)(**{**fields, **changes})).list_project)

        for auth_version in ("v1", "v4"):
            assert answer(auth_version=auth_version, access_key_secret=Secret("wrong")) == (401, "SignatureNotMatch")
            assert answer(auth_version=auth_version, access_key_id="other") == (401, "Unauthorized")
            assert answer(auth_version=auth_version, security_token=Secret("")) == (401, "Unauthorized")
            assert answer(auth_version=auth_version, security_token=Secret("old")) == (401, "Unauthorized")
