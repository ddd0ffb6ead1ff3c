"""The connections of types `sls` and `slshudi_ledger`."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from aliyun.log import LogException

from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.hooks.connections import ConnectionMissing, find_connection
from airflow_provider_slshudi.hooks.ledger import LedgerHook
from airflow_provider_slshudi.hooks.sls import SlsHook
from airflow_provider_slshudi.hooks.spark import SparkLauncher
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.sls import credentials
from airflow_provider_slshudi.sls.connection import split_endpoint
from airflow_provider_slshudi.sls.faults import PERSON
from tests.databases import mariadb_server, postgres_server
from tests.local.sdk import PROJECT, by_ip, make_logstore
from tests.machine import connection
from tests.services import closed_port

SLS = "AIRFLOW_CONN_SLS_DEFAULT"
LEDGER = "AIRFLOW_CONN_SLSHUDI_LEDGER"


def test_an_sls_connection_reaches_a_logstore(sls: LocalSls, monkeypatch: pytest.MonkeyPatch) -> None:
    given = sls.connection()
    extra = {"security_token": "", "region": "cn-local", "auth_version": "v4"}
    monkeypatch.setenv(
        SLS,
        connection(
            "sls",
            host=given.endpoint,
            login=given.access_key_id,
            password=given.access_key_secret.reveal(),
            extra=extra,
        ),
    )
    make_logstore(by_ip(given), "hooks", shards=3)
    found = SlsHook().connection()
    assert (found.auth_version, found.region) == ("v4", "cn-local")
    assert [shard.id for shard in SlsHook().service("demo-project", "hooks", PERSON).shards()] == [0, 1, 2]
    works, message = SlsHook().test_connection()
    assert works and "Name a project and a logstore" in message
    shards = SlsHook().get_conn().list_shards("demo-project", "hooks").get_shards_info()
    assert [shard["shardID"] for shard in shards] == [0, 1, 2]


def test_the_sdks_client_asks_with_the_credentials_of_now(
    sls: LocalSls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given, keys = sls.connection(), tmp_path / "keys.json"

    def keep(secret: str) -> None:
        told = {"AccessKeyId": given.access_key_id, "AccessKeySecret": secret, "Expiration": "2026-01-01T00:00:00Z"}
        keys.write_text(json.dumps(told))

    extra = {"credentials": f"file:{keys}", "auth_version": "v1"}
    monkeypatch.setenv(SLS, connection("sls", host=f"http://{given.endpoint}", extra=extra))
    monkeypatch.setattr(credentials, "_RETRY_SECONDS", 0.0)
    make_logstore(by_ip(given), "renewed", shards=1)
    keep("former")
    client = SlsHook().get_conn()
    with pytest.raises(LogException, match="SignatureNotMatch"):
        client.list_shards("demo-project", "renewed")
    keep(given.access_key_secret.reveal())
    assert len(client.list_shards("demo-project", "renewed").get_shards_info()) == 1


def used(conn_type: str) -> object:
    """What the package makes of the connection `typed`."""
    if conn_type == "spark":
        return SparkLauncher("typed").master()
    return SlsHook("typed").connection() if conn_type == "sls" else LedgerHook("typed").url()


KEYS = {"login": "id", "password": "key"}


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("cn-hangzhou.log.aliyuncs.com", "cn-hangzhou"),
        ("https://cn-hangzhou-intranet.log.aliyuncs.com", "cn-hangzhou"),
        ("ap-southeast-1.log.aliyuncs.com:443", "ap-southeast-1"),
    ],
)
def test_what_a_connection_leaves_out_is_https_signature_v4_and_the_endpoints_region(
    host: str, region: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SLS, json.dumps({"conn_type": "sls", "host": host, **KEYS}))
    found = SlsHook().connection()
    assert (found.auth_version, found.region, split_endpoint(found.endpoint)[0]) == ("v4", region, "https")


@pytest.mark.parametrize("host", ["10.0.0.1:8085", "log-global.aliyuncs.com", "cn-hangzhou-finance.log.aliyuncs.com"])
def test_an_endpoint_that_names_no_sure_region_asks_for_it(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SLS, json.dumps({"conn_type": "sls", "host": host, **KEYS}))
    with pytest.raises(ConfigError, match="set the extra `region`") as refused:
        SlsHook().connection()
    assert refused.value.field == "region"


def test_plain_http_and_signature_v1_are_had_by_word(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"conn_type": "sls", "host": "http://10.0.0.1:8085", "extra": {"auth_version": "v1"}, **KEYS}
    monkeypatch.setenv(SLS, json.dumps(fields))
    found = SlsHook().connection()
    assert (found.auth_version, found.region, split_endpoint(found.endpoint)[0]) == ("v1", "", "http")


def given(sls: LocalSls, **extra: str) -> str:
    """The local service's connection."""
    there = sls.connection()
    fields = {"host": there.endpoint, "login": there.access_key_id, "password": there.access_key_secret.reveal()}
    return connection("sls", **fields, extra=extra)


def test_the_button_asks_the_logstore_that_the_connection_names(sls: LocalSls, monkeypatch: pytest.MonkeyPatch) -> None:
    make_logstore(by_ip(sls.connection()), "pressed", shards=2)
    monkeypatch.setenv(SLS, given(sls, project=PROJECT, logstore="pressed"))
    works, message = SlsHook().test_connection()
    assert works and "2 shards" in message and "log:GetCursorOrData is allowed" in message
    sls.faults = {"rules": [{"operations": "get_cursor", "do": "error", "status": 401, "code": "Unauthorized"}]}
    try:
        works, message = SlsHook().test_connection()
    finally:
        sls.faults = None
    assert not works and "allow the key log:GetCursorOrData" in message


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        ({"project": "demo-project", "logstore": "none-such"}, "check the logstore's name"),
        ({"project": "none-such", "logstore": "pressed"}, "check the project's name"),
        ({"project": "demo-project"}, "'' is no name of a logstore"),
    ],
)
def test_the_button_tells_what_is_wrong_with_a_logstore(
    sls: LocalSls, extra: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SLS, given(sls, **extra))
    works, message = SlsHook().test_connection()
    assert not works and told in message


def test_the_button_does_not_wait_where_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with closed_port() as port:
        monkeypatch.setenv(SLS, connection("sls", host=f"127.0.0.1:{port}", login="id", password="key"))
        started = time.monotonic()
        works, message = SlsHook().test_connection()
    assert not works and "check the endpoint" in message
    assert time.monotonic() - started < 3


def test_a_wrong_secret_fails_the_test_button_and_is_not_told(sls: LocalSls, monkeypatch: pytest.MonkeyPatch) -> None:
    given = sls.connection()
    fields = {"host": given.endpoint, "login": given.access_key_id, "password": "wrong-password-0451"}
    monkeypatch.setenv(SLS, connection("sls", **fields))
    works, message = SlsHook().test_connection()
    assert not works and "secret" in message and "wrong-password-0451" not in message


def test_a_missing_connection_says_how_to_add_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SLS, raising=False)
    with pytest.raises(
        ConnectionMissing, match=r"no connection 'sls_default': add it with type sls .*AIRFLOW_CONN_SLS"
    ):
        SlsHook().connection()


def test_a_connection_of_another_type_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SLS, connection("http", host="example.org"))
    with pytest.raises(ConfigError, match=r"'sls_default' has type 'http', expected 'sls'"):
        SlsHook().connection()


def test_the_ledger_is_made_where_it_is_missing_and_opened_once(ledger_connection: Path) -> None:
    assert not ledger_connection.exists()
    ledger = LedgerHook().ledger()
    ledger.register("clicks", "sls://shop/clicks", "file:///lake/clicks")
    assert ledger_connection.exists()
    assert LedgerHook().ledger() is ledger
    works, message = LedgerHook().test_connection()
    assert works and "tables of version" in message and "given back" in message
    assert [item.name for item in ledger.pipelines()] == ["clicks"]


def test_the_button_makes_no_ledger(ledger_connection: Path) -> None:
    works, message = LedgerHook().test_connection()
    assert works and "no file yet" in message
    assert list(ledger_connection.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"schema": "/tmp/x.db"}, "`dialect` is one of sqlite, postgresql, mysql"),
        ({"schema": "x.db", "extra": {"dialect": "sqlite"}}, "absolute path of the SQLite file"),
        ({"schema": "x", "extra": {"dialect": "postgresql"}}, "needs a host"),
    ],
)
def test_a_ledger_connection_that_cannot_work_is_refused(
    fields: dict[str, object], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEDGER, connection("slshudi_ledger", **fields))
    with pytest.raises(ConfigError, match="slshudi_ledger") as refused:
        LedgerHook().ledger()
    assert told in str(refused.value)


def test_hosts_may_be_listed_with_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"host": "db1, db2 ,db3", "schema": "ledger", "login": "u"}
    monkeypatch.setenv(LEDGER, connection("slshudi_ledger", **fields, extra={"dialect": "postgresql"}))
    assert str(LedgerHook().url()) == "postgresql://u@db1,db2,db3/ledger"


def test_a_database_that_does_not_answer_fails_the_test_button_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fields = {"host": "127.0.0.1", "port": 9, "schema": "ledger", "login": "u", "password": "never-to-be-seen"}
    monkeypatch.setenv(LEDGER, connection("slshudi_ledger", **fields, extra={"dialect": "postgresql"}))
    works, message = LedgerHook().test_connection()
    assert not works and "did not answer" in message and "never-to-be-seen" not in message


@pytest.mark.parametrize(
    ("conn_type", "field", "more"),
    [
        ("sls", "password", {}),
        ("sls", "host", {}),
        ("sls", "extra security_token", {"extra": {"security_token": "opensesame\n"}}),
        ("slshudi_ledger", "password", {"schema": "s", "host": "h", "extra": {"dialect": "postgresql"}}),
        ("slshudi_ledger", "login", {"schema": "s", "host": "h", "extra": {"dialect": "postgresql"}}),
        ("spark", "host", {}),
    ],
)
def test_a_character_that_nobody_sees_is_told_by_field_without_the_value(
    monkeypatch: pytest.MonkeyPatch, conn_type: str, field: str, more: dict[str, object]
) -> None:
    fields = {"host": "h", **more} if field.startswith("extra") else {"host": "h", **more, field: "opensesame\u200b"}
    monkeypatch.setenv("AIRFLOW_CONN_TYPED", json.dumps({"conn_type": conn_type, **fields}))
    with pytest.raises(ConfigError, match=rf"its {field} has a character that is not seen: .*U\+") as raised:
        find_connection("typed", conn_type)
    assert "opensesame" not in f"{raised.value} {vars(raised.value)}"


@pytest.mark.parametrize(
    "typed",
    [
        json.dumps({"conn_type": "sls", "host": "http://127.0.0.1", "port": 8085, "login": "id", "password": "key"}),
        "sls://id:key@127.0.0.1:8085?region=r",
    ],
)
def test_a_port_of_its_own_is_asked(monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_TYPED", typed.replace('"password"', '"extra": {"region": "r"}, "password"'))
    connection = SlsHook("typed").connection()
    assert split_endpoint(connection.endpoint)[1:] == ("127.0.0.1", 8085)


@pytest.mark.parametrize(
    ("conn_type", "fields", "told"),
    [
        ("sls", {"host": "h:80", "port": 8085}, "names a port, and so does"),
        ("sls", {"host": "h", "schema": "x"}, "schema means nothing"),
        ("sls", {"host": "h", "extra": {"secure": "true"}}, "extra secure means nothing"),
        (
            "slshudi_ledger",
            {"host": "h", "schema": "s", "extra": {"dialect": "mysql", "sslmode": "x"}},
            "extra sslmode",
        ),
        ("slshudi_ledger", {"host": "h", "schema": "/f", "extra": {"dialect": "sqlite"}}, "host means nothing"),
        ("spark", {"host": "yarn"}, "login means nothing"),
        ("spark", {"host": "", "login": "", "password": ""}, "host is empty"),
        (
            "spark",
            {"host": "yarn", "login": "", "password": "", "extra": {"spark-home": "/x"}},
            "extra spark-home means",
        ),
        (
            "spark",
            {"host": "yarn", "login": "", "password": "", "extra": {"deploy-mode": "clustr"}},
            "client or cluster",
        ),
    ],
)
def test_a_field_that_would_be_ignored_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, conn_type: str, fields: dict[str, object], told: str
) -> None:
    given = {"conn_type": conn_type, "login": "id", "password": "key", **fields}
    if "sqlite" in str(fields):
        given = {key: value for key, value in given.items() if key not in ("login", "password")}
    monkeypatch.setenv("AIRFLOW_CONN_TYPED", json.dumps(given))
    with pytest.raises(ConfigError, match=told):
        used(conn_type)


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        ("{'security_token': 'opensesame'}", "its extra is no JSON object"),
        ('["opensesame"]', "its extra is no JSON object"),
        ('{"security_token": {"now": "opensesame"}}', "its extra security_token is no text"),
        ('{"credentials": "opensesame"}', "credentials of the SLS connection: expected"),
        ('{"assume_role": "opensesame"}', "assume_role of the SLS connection: expected"),
        ('{"auth_version": "opensesame"}', "auth_version of the SLS connection: expected"),
    ],
)
def test_an_extra_that_cannot_be_used_is_told_without_what_is_in_it(
    extra: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {} if "credentials" in extra else KEYS
    given = {"conn_type": "sls", "host": "cn-hangzhou.log.aliyuncs.com", "extra": extra, **keys}
    monkeypatch.setenv("AIRFLOW_CONN_TYPED", json.dumps(given))
    with pytest.raises(ConfigError, match=told) as refused:
        used("sls")
    error = refused.value
    assert "sesame" not in f"{error} {vars(error)} {error.__cause__} {error.__context__}"


@pytest.mark.parametrize(
    ("changed", "extra", "field"),
    [
        ({}, {"ssl_check_hostname": "true"}, "extra ssl_check_hostname"),
        ({}, {"ssl_check_hostname": "opensesame", "ssl_ca": "/ca.pem"}, "extra ssl_check_hostname"),
        ({}, {"ssl_key": "/opensesame.pem"}, "extra ssl_key"),
        ({"password": "opensesame€"}, {}, "password"),
    ],
)
def test_what_mysqls_driver_would_leave_out_or_cannot_send_is_refused_by_name(
    changed: dict[str, str], extra: dict[str, str], field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"host": "127.0.0.1", "schema": "s", "login": "u", "password": "p", **changed}
    monkeypatch.setenv(
        "AIRFLOW_CONN_TYPED", connection("slshudi_ledger", **fields, extra={"dialect": "mysql", **extra})
    )
    with pytest.raises(ConfigError) as refused:
        LedgerHook("typed").ledger()
    assert refused.value.field == field
    assert "sesame" not in f"{refused.value} {vars(refused.value)}"


def test_whether_mysqls_driver_checks_the_host_is_said_as_sqlalchemy_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for checks in ("True", "1", "yes", "off", "false", ""):
        extra = {"dialect": "mysql", "ssl_check_hostname": checks, "ssl_capath": "/etc/ssl/certs"}
        monkeypatch.setenv("AIRFLOW_CONN_TYPED", connection("slshudi_ledger", host="h", schema="s", extra=extra))
        assert LedgerHook("typed").url().query.get("ssl_check_hostname", "") == checks


@pytest.mark.parametrize("host", ["opensesame@cn-hangzhou.log.aliyuncs.com", "https://id@cn-hangzhou.log.aliyuncs.com"])
def test_a_key_that_was_typed_before_the_endpoint_is_told_by_no_error(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SLS, json.dumps({"conn_type": "sls", "host": host, "extra": {"region": "r"}, **KEYS}))
    works, message = SlsHook().test_connection()
    assert not works and "a user before the host" in message and "sesame" not in message


def test_how_a_ledger_is_reached_by_tls_is_told_to_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"conn_type": "slshudi_ledger", "host": "db", "schema": "s", "login": "u", "password": "p"}
    extra = {"dialect": "postgresql", "sslmode": "verify-full", "sslrootcert": "/ca.pem"}
    monkeypatch.setenv("AIRFLOW_CONN_TYPED", json.dumps({**fields, "extra": extra}))
    query = LedgerHook("typed").url().query
    assert (query["sslmode"], query["sslrootcert"]) == ("verify-full", "/ca.pem")


def test_a_ledger_that_was_asked_for_tls_is_not_reached_without(monkeypatch: pytest.MonkeyPatch) -> None:
    with postgres_server() as server:
        fields = {"conn_type": "slshudi_ledger", "host": "127.0.0.1", "port": server.port, "login": "postgres"}
        extra = {"dialect": "postgresql", "sslmode": "require"}
        monkeypatch.setenv("AIRFLOW_CONN_TYPED", json.dumps({**fields, "schema": "postgres", "extra": extra}))
        ok, said = LedgerHook("typed").test_connection()
    assert not ok and "SSL" in said


def test_a_mysql_ledger_that_was_asked_for_tls_is_not_reached_without(monkeypatch: pytest.MonkeyPatch) -> None:
    with mariadb_server() as server:
        fields = {"conn_type": "slshudi_ledger", "host": "127.0.0.1", "port": server.port, "login": "ledger"}
        extra = {"dialect": "mysql", "ssl_check_hostname": "false", "ssl_capath": "/etc/ssl/certs"}
        monkeypatch.setenv("AIRFLOW_CONN_TYPED", json.dumps({**fields, "schema": "ledger", "extra": extra}))
        ok, said = LedgerHook("typed").test_connection()
    assert not ok and "SSL is required but the server doesn't support it" in said
