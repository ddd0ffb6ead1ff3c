"""What a connection keeps secret is in no text that is made of it."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import make_url

from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.sls.credentials import Credentials
from airflow_provider_slshudi.system.secrets import Secret, Variables

KEY = Secret("opensesame")
CONNECTION = SlsConnection("https://sls.example.com", "id", KEY, KEY, region="cn-x", auth_version="v4")


@pytest.mark.parametrize(
    "shown",
    [KEY, [KEY], {"key": KEY}, CONNECTION, Credentials("id", KEY, KEY), CONNECTION.to_env(), [CONNECTION.to_env()]],
    ids=lambda shown: type(shown).__name__,
)
def test_no_text_shows_it(shown: object, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("shown").error("%s %r", shown, shown)
    texts = [repr(shown), str(shown), f"{shown}", f"{shown!r}", f"{ValueError(shown)} {ValueError(shown)!r}"]
    texts.append(caplog.text)
    assert not [text for text in texts if "sesame" in text]


def test_what_makes_one_text_of_many_refuses_it() -> None:
    key: Any = KEY
    joins: list[Callable[[], str]] = [
        lambda: "".join(["key=", key]),
        lambda: "key=" + key,
        lambda: json.dumps(key),
        lambda: f"{key:>20}",
        lambda: str(pickle.dumps(CONNECTION)),
    ]
    for join in joins:
        with pytest.raises(TypeError) as refused:
            join()
        assert "sesame" not in str(refused.value)


def test_it_is_revealed_where_it_is_used() -> None:
    assert CONNECTION.access_key_secret.reveal() == "opensesame"
    assert CONNECTION.to_env()["SLSHUDI_SLS_ACCESS_KEY_SECRET"] == "opensesame"
    assert {Secret("a"), Secret("a"), Secret("b")} == {Secret("a"), Secret("b")}
    assert not Secret("") and Secret("a") != "a"


def test_variables_of_a_process_are_shown_by_their_names() -> None:
    assert repr(Variables({"TOKEN": "opensesame", "REGION": "cn-x"})) == "Variables(TOKEN, REGION)"


def test_a_ledgers_url_shows_no_password() -> None:
    url = make_url("postgresql://me:opensesame@db/ledger")
    assert "sesame" not in f"{url} {url!r} {url!s} {[url]}"
