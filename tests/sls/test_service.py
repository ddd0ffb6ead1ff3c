"""One logstore: what it answers, what it retries, and what it does not believe."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

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
from airflow_provider_slshudi.sls.connection import AuthVersion, SlsConnection
from airflow_provider_slshudi.sls.faults import PERSON, Patience
from airflow_provider_slshudi.sls.pace import Limits, Pacer
from airflow_provider_slshudi.sls.service import Compression, LogService, Shard
from airflow_provider_slshudi.system.secrets import NONE, Secret
from tests.local.sdk import PROJECT, by_ip, make_logstore, put
from tests.services import closed_port
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


def test_a_logstore_says_how_long_it_keeps_logs(service: LogService, client: LogClient) -> None:
    first = service.retention()
    assert first is not None
    kept, changed = first
    assert kept == 7 * 86_400 and abs(changed - time.time()) < 60
    client.update_logstore(PROJECT, service.logstore, ttl=30)
    second = service.retention()
    assert second is not None
    kept, again = second
    assert kept == 30 * 86_400 and again >= changed


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


@pytest.mark.parametrize("auth_version", ["v1", "v4"])
@pytest.mark.parametrize("token", ["", "a+token/with=signs"])
def test_both_signatures_are_accepted_with_and_without_a_token(
    tmp_path: Path, auth_version: AuthVersion, token: str
) -> None:
    with LocalSls(tmp_path, security_token=token) as server:
        there = server.connection()
        logstore = make_logstore(by_ip(there), "signed")
        connection = replace(there, auth_version=auth_version, region="cn-local", security_token=Secret(token))
        service = LogService(connection, PROJECT, logstore)
        put(by_ip(there), logstore, [b"a"])
        assert [shard.id for shard in service.shards()] == [0]
        assert service.pull(0, service.begin(0), service.end(0)).groups == 1
        wrong = replace(connection, access_key_secret=Secret("wrong"))
        with pytest.raises(SourceRefused, match="SignatureNotMatch"):
            LogService(wrong, PROJECT, logstore).shards()


def test_only_a_server_with_a_trusted_certificate_is_spoken_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalSls(tmp_path, tls=True) as server:
        with pytest.raises(SourceRefused, match="REQUESTS_CA_BUNDLE") as error:
            LogService(server.connection(), PROJECT, "logs").shards()
        assert error.value.code == "CertificateNotTrusted"
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(server.authority))
        logstore = make_logstore(by_ip(server.connection()), "encrypted")
        assert len(LogService(server.connection(), PROJECT, logstore).shards()) == 1


def test_a_refused_token_is_renewed_once(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"

    def rotate(token: str) -> None:
        keys.write_text(json.dumps({"AccessKeyId": "id", "AccessKeySecret": "key", "SecurityToken": token}))

    with LocalSls(tmp_path / "sls", access_key_id="id", access_key_secret="key", security_token="new") as server:
        client = by_ip(server.connection())
        logstore = make_logstore(client, "rotating")
        rotate("old")
        fetched = SlsConnection(server.endpoint, "", NONE, credentials=f"file:{keys}")
        service = LogService(fetched, PROJECT, logstore)
        with pytest.raises(SourceRefused, match="token"):
            service.shards()
        rotate("new")
        assert len(service.shards()) == 1
        keys.unlink()
        service = LogService(service.connection, PROJECT, logstore, patience=Patience(0.3))
        with pytest.raises(SourceUnavailable, match=r"keys\.json"):
            service.shards()


def test_quota_errors_lower_the_pace_of_the_next_pulls(
    disturbed: Connect, way: Disturbed, client: LogClient, logstore: str
) -> None:
    put(client, logstore, [b"a"])
    service, pacer = disturbed(20.0), Pacer(Limits(1e9, 1e6))
    begin = service.begin(0)
    way.changes += [disturbance.fault(403, "ShardReadQuotaExceed"), disturbance.fault(500, "InternalServerError")]
    service.pull(0, begin, begin + 1, pacer=pacer)
    assert 0.5 <= pacer.factor < 0.6


def test_times_find_cursors(service: LogService, client: LogClient) -> None:
    put(client, service.logstore, [b"a"])
    now = int(time.time())
    assert service.at(0, now - 100) == service.begin(0)
    assert service.at(0, now + 100) == service.end(0)


def test_a_service_shows_its_credentials_to_nobody(service: LogService) -> None:
    with pytest.raises(TypeError, match="do not travel"):
        pickle.dumps(service)
    assert service.connection.access_key_secret.reveal() not in repr(service)


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
    assert time.monotonic() - started < 5
    assert 2 <= sum(way.at in path for path in way.seen) <= 40
    assert (error.value.project, error.value.logstore) == (PROJECT, service.logstore)
    assert (error.value.shard, error.value.cursor) == (0, begin)
    assert error.value.code


def test_a_server_that_is_not_there_costs_the_budget_and_no_more(service: LogService) -> None:
    with closed_port() as port:
        connection = SlsConnection(f"127.0.0.1:{port}", "id", Secret("secret"))
        started = time.monotonic()
        with pytest.raises(SourceUnavailable) as error:
            LogService(connection, PROJECT, "logs", patience=Patience(0.5)).shards()
    assert time.monotonic() - started < 3
    assert error.value.code == "Unreachable"
    assert "secret" not in str(error.value)


def test_an_endpoint_that_no_name_server_knows_is_not_reached() -> None:
    service = LogService(SlsConnection("sls.invalid", "id", Secret("secret")), PROJECT, "logs", patience=PERSON)
    with pytest.raises(SourceUnavailable, match=r"demo-project\.sls\.invalid") as error:
        service.shards()
    assert error.value.code == "Unreachable"


@pytest.mark.parametrize("seconds", [0, 3600, -3600])
def test_answers_tell_how_far_this_machine_s_clock_is_off(
    service: LogService, seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + seconds)
    ahead = service.ahead()  # refused where the clock is far off, and told all the same
    assert ahead is not None and abs(ahead - seconds) < 3


def test_answers_without_a_date_tell_nothing_of_clocks(disturbed: Connect, way: Disturbed) -> None:
    service, way.at = disturbed(0.0), "/shards"
    way.changes.append(disturbance.headers(date=None))
    assert service.ahead() is None


def test_a_refusal_is_final_and_says_what_to_do(local_sls: LocalSls, service: LogService) -> None:
    there = service.connection
    wrong = SlsConnection(there.endpoint, there.access_key_id, Secret("opensesame"))
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
        (disturbance.headers(x_log_bodyrawsize="99999"), "99999"),
        (disturbance.headers(x_log_bodyrawsize="74"), "fewer bytes than the 74"),
        (disturbance.headers(x_log_bodyrawsize=str(2**40)), "more than"),
        (disturbance.headers(x_log_bodyrawsize="-1"), "no number"),
        (disturbance.headers(x_log_count="2"), "2 log groups but the next cursor"),
        (disturbance.headers(x_log_count="0"), "1 log groups where x-log-count says 0"),
        (disturbance.headers(x_log_cursor=cursors.text(7)), "the next cursor 7"),
        (disturbance.headers(x_log_cursor=cursors.text(2**62)), "beyond the end"),
        (disturbance.headers(x_log_cursor="nonsense"), "no SLS cursor"),
        (disturbance.headers(x_log_cursor=None), "no header x-log-cursor"),
        (disturbance.headers(x_log_compresstype="snappy"), "snappy"),
        (disturbance.garbled, "do not decompress"),
        (disturbance.page(200), "no header x-log-count"),
    ],
)
def test_an_answer_that_contradicts_itself_is_not_believed(
    disturbed: Connect, way: Disturbed, client: LogClient, logstore: str, change: Change, words: str
) -> None:
    put(client, logstore, [b"some bytes, some bytes, some bytes"])
    service = disturbed(0.0)
    begin = service.begin(0)
    way.changes += [change, change]
    with pytest.raises(SourceCorrupt, match=words) as error:
        service.pull(0, begin, begin + 1)
    assert (error.value.shard, error.value.cursor) == (0, begin)
    assert "asked for again, from the same cursor" in str(error.value)
    service.patience = Patience(20.0)
    assert service.pull(0, begin, begin + 1).groups == 1
    assert way.changes == []


def test_a_plain_body_of_another_size_than_announced_is_not_believed(
    disturbed: Connect, way: Disturbed, client: LogClient, logstore: str
) -> None:
    put(client, logstore, [b"a"])
    service = disturbed(0.0)
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
