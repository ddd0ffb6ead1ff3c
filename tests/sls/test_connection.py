"""A connection travels by environment and shows no secret."""

from __future__ import annotations

import pytest

from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.sls.credentials import Credentials, FromRole
from airflow_provider_slshudi.system.secrets import NONE, Secret

FULL = SlsConnection(
    "https://cn-x.log.aliyuncs.com:8443", "id", Secret("opensesame"), Secret("opentoken"), "cn-x", "v4"
)


FETCHED = SlsConnection("cn-x.log.aliyuncs.com", "", NONE, credentials="ecs:reader")


@pytest.mark.parametrize("connection", [FULL, FETCHED, SlsConnection("10.0.0.1:80", "id", Secret("opensesame"))])
def test_the_environment_brings_back_the_same_connection(connection: SlsConnection) -> None:
    assert SlsConnection.from_env({"PATH": "/bin", **connection.to_env()}) == connection


def test_secrets_are_in_no_repr_and_under_names_that_masks_know() -> None:
    assert "opensesame" not in repr(FULL)
    assert "opentoken" not in repr(FULL)
    for name, value in FULL.to_env().items():
        assert name.startswith("SLSHUDI_SLS_")
        assert ("SECRET" in name) == value.startswith("open")


@pytest.mark.parametrize("missing", ["ENDPOINT", "ACCESS_KEY_ID", "ACCESS_KEY_SECRET"])
def test_a_missing_variable_is_named(missing: str) -> None:
    environ = FULL.to_env()
    del environ[f"SLSHUDI_SLS_{missing}"]
    with pytest.raises(ConfigError, match=f"SLSHUDI_SLS_{missing} is not set") as error:
        SlsConnection.from_env(environ)
    assert error.value.field == f"SLSHUDI_SLS_{missing}"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("endpoint", ""),
        ("endpoint", "ftp://host"),
        ("endpoint", "https://"),
        ("endpoint", "host:port"),
        ("endpoint", "host:99999"),
        ("endpoint", "http://[::1]:80"),
        ("endpoint", "host/path"),
        ("access_key_id", ""),
        ("access_key_secret", NONE),
        ("auth_version", "v2"),
        ("region", ""),
        ("credentials", "ecs:reader"),
        ("credentials", "vault:x"),
    ],
)
def test_what_cannot_work_is_refused_at_once_by_field(field: str, value: str | Secret) -> None:
    fields = {name: getattr(FULL, name) for name in FULL.__slots__}
    with pytest.raises(ConfigError) as error:
        SlsConnection(**{**fields, field: value})
    assert error.value.field == field
    assert "opensesame" not in str(error.value)


def test_keys_or_the_place_where_they_are_fetched_are_asked() -> None:
    keys = FULL.provider()()
    assert keys == Credentials("id", Secret("opensesame"), Secret("opentoken"))
    assert FETCHED.provider() == FromRole("reader")
    assert FETCHED.to_env()["SLSHUDI_SLS_CREDENTIALS"] == "ecs:reader"
