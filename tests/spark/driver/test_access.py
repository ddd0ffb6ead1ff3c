"""Credentials that only the driver fetches: tasks ask it for them, and for others once theirs are no good."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.sls import credential_server
from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.sls.credential_server import CredentialServer
from airflow_provider_slshudi.sls.credentials import EARLY, Keeper
from airflow_provider_slshudi.spark import keyserver
from airflow_provider_slshudi.spark.driver.key_access import _Asked
from airflow_provider_slshudi.spark.keyserver import KeyServer
from airflow_provider_slshudi.system.secrets import NONE, Secret


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def write(file: Path, key: str, seconds: float | None = None) -> None:
    end = None if seconds is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))
    file.write_text(json.dumps({"AccessKeyId": key, "AccessKeySecret": "opensesame", "Expiration": end}))


@contextmanager
def told(file: Path) -> Iterator[_Asked]:
    credential_server = CredentialServer([SlsConnection("host", "", NONE, credentials=f"file:{file}")])
    server = KeyServer(credential_server, "127.0.0.1", "127.0.0.1")
    try:
        yield _Asked(server.place.address, server.place.token, 0)
    finally:
        server.close()


def test_a_task_gets_what_the_driver_has_and_not_where_it_comes_from(file: Path) -> None:
    write(file, "first")
    with told(file) as driver:
        assert driver().access_key_id == "first"
    assert driver.service == {"endpoint": "host", "region": "", "auth_version": "v1", "mask_name": ""}


def test_each_connection_is_told_by_its_number(file: Path) -> None:
    write(file, "first")
    other = SlsConnection("elsewhere", "second", Secret("opensesame"))
    both = CredentialServer([SlsConnection("host", "", NONE, credentials=f"file:{file}"), other])
    both.first()
    answers = [json.loads(both(f"{number} ")) for number in (0, 1)]
    assert [(answer["service"]["endpoint"], answer["keys"]["access_key_id"]) for answer in answers] == [
        ("host", "first"),
        ("elsewhere", "second"),
    ]
    for wrong in ("2 ", "", "-1 ", "x"):
        assert "there is no connection" in json.loads(both(wrong))["wrong"]


def test_refused_credentials_are_replaced_if_the_driver_finds_others(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(file, "first")
    with told(file) as driver:
        keeper = Keeper(driver)
        first = keeper.get()
        assert not keeper.refused(first)
        write(file, "second")
        assert not keeper.refused(first), "many are refused at once, and the provider is asked once in ten seconds"
        monkeypatch.setattr(credential_server, "_RENEW_SECONDS", 0.0)
        assert keeper.refused(first)
        assert keeper.get().access_key_id == "second"


def test_others_are_asked_for_before_they_expire(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(file, "first", EARLY + 100)
    now = time.time()
    with told(file) as driver:
        keeper = Keeper(driver)
        assert keeper.get().access_key_id == "first"
        write(file, "second", 3600)
        assert keeper.get().access_key_id == "first"
        monkeypatch.setattr(time, "time", lambda: now + 110)
        assert keeper.get().access_key_id == "second"


def test_a_driver_without_credentials_says_why(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyserver, "_PAUSE_SECONDS", 0.01)
    with told(file) as driver:
        with pytest.raises(OSError, match=r"no credentials can be given: .*keys\.json"):
            driver()
        file.write_text("opensesame")
        with pytest.raises(ConfigError, match=r"keys\.json holds no credentials") as error:
            driver()
        assert "opensesame" not in str(error.value)


def test_an_asker_s_clock_may_be_wrong_by_days(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the asker's clock is ahead: what it is told lasts an hour, and it asks again when that is nearly over."""
    write(file, "first", 3600)
    credential_server = CredentialServer([SlsConnection("host", "", NONE, credentials=f"file:{file}")])
    asked, real = list[str](), time.time
    answer = credential_server("0 ")

    class Address:
        def ask(self, token: bytes, question: str) -> bytes:
            asked.append(question)
            return answer

    days = 2 * 86_400
    monkeypatch.setattr(time, "time", lambda: real() + days)
    keeper = Keeper(_Asked(Address(), b"", 0))  # type: ignore[arg-type]
    assert keeper.get().access_key_id == keeper.get().access_key_id == "first"
    assert asked == ["0 "]
    monkeypatch.setattr(time, "time", lambda: real() + days + 3600 - EARLY + 5)
    keeper.get()
    assert asked == ["0 ", "0 "], "it was not refused, it asks in time"


def test_whatever_goes_wrong_in_the_driver_is_told_without_its_text(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyserver, "_PAUSE_SECONDS", 0.01)
    write(file, "first")

    def broken(keeper: Keeper) -> None:
        raise ZeroDivisionError("opensesame")

    with told(file) as driver:
        monkeypatch.setattr(Keeper, "get", broken)
        with pytest.raises(OSError, match="no credentials can be given: ZeroDivisionError") as error:
            driver()
    assert "opensesame" not in str(error.value)
