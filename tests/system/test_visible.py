"""Characters that nobody sees, where keys and names are typed."""

from __future__ import annotations

import pytest

from airflow_provider_slshudi.exceptions import ConfigError, TableError
from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.sls.credentials import Credentials, parse
from airflow_provider_slshudi.storage.objectstore import arrow_options
from airflow_provider_slshudi.system.secrets import Secret, hidden_in

FIELDS = ("endpoint", "access_key_id", "access_key_secret", "security_token", "region")


def typed(**changes: str) -> SlsConnection:
    given = {"endpoint": "cn-x.log.aliyuncs.com", "access_key_id": "id", "access_key_secret": "secret"}
    given |= {"security_token": "token", "region": "cn-x", **changes}
    secret, token = Secret(given["access_key_secret"]), Secret(given["security_token"])
    return SlsConnection(given["endpoint"], given["access_key_id"], secret, token, given["region"], "v4")


@pytest.mark.parametrize(
    "value", ["opensesame\n", "open\u200bsesame", "\ufeffopensesame", "open sesame", "open\u00a0sesame"]
)
@pytest.mark.parametrize("field", FIELDS)
def test_a_connection_names_the_field_and_never_its_value(field: str, value: str) -> None:
    with pytest.raises(ConfigError) as raised:
        typed(**{field: value})
    said = f"{raised.value!r} {raised.value} {vars(raised.value)} {raised.value.__cause__} {raised.value.__context__}"
    assert field in str(raised.value) and "U+" in str(raised.value)
    assert "sesame" not in said


@pytest.mark.parametrize("endpoint", ["ftp://id:opensesame@host", "https://id:opensesame@host/x", "opensesame:x"])
def test_an_endpoint_into_which_keys_were_typed_is_not_quoted(endpoint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        typed(endpoint=endpoint)
    assert "opensesame" not in f"{raised.value} {vars(raised.value)}"


def test_temporary_credentials_are_checked_wherever_they_come_from() -> None:
    content = b'{"AccessKeyId": "id", "AccessKeySecret": "s", "SecurityToken": "opensesame\\n", "Expiration": null}'
    with pytest.raises(ConfigError, match=r"security_token .*character 11 of 11 is U\+000A") as raised:
        parse(content, "a file")
    assert "opensesame" not in str(raised.value)
    assert "opensesame" not in repr(Credentials("id", Secret("opensesame"), Secret("opensesame")))


@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"])
def test_a_variable_of_an_object_store_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "opensesame\n")
    with pytest.raises(TableError, match=f"environment variable {name}: character 11 of 11") as raised:
        arrow_options("s3://bucket/table")
    assert "opensesame" not in str(raised.value)


def test_what_people_do_see_is_no_fault() -> None:
    assert hidden_in("Passwört mit Leerzeichen 上海") == ""
    assert hidden_in("ordinary-KEY_1/+=.", only_ascii=True) == ""
