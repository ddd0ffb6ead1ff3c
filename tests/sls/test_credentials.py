"""Credentials are asked for in time, kept while they are good, and never shown."""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.sls.credentials import EARLY, Credentials, FromFile, FromRole, Keeper, provider_of
from airflow_provider_slshudi.system.secrets import Secret


class Changing:
    """A provider whose answers a scenario sets; counts how often it was asked."""

    def __init__(self, *answers: Credentials | Exception) -> None:
        self.answers, self.asked = list(answers), 0

    def __call__(self) -> Credentials:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def lasting(name: str, seconds: float) -> Credentials:
    return Credentials(name, Secret("opensesame"), Secret("opentoken"), time.time() + seconds)


def test_credentials_without_an_end_are_asked_for_once() -> None:
    provider = Changing(Credentials("id", Secret("opensesame")))
    keeper = Keeper(provider)
    assert [keeper.get().access_key_id for _ in range(3)] == ["id"] * 3
    assert provider.asked == 1


def test_others_are_asked_for_before_the_present_ones_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = Changing(lasting("first", 3600), lasting("second", 7200))
    keeper, now = Keeper(provider), time.time()
    assert keeper.get().access_key_id == "first"
    monkeypatch.setattr(time, "time", lambda: now + 3600 - EARLY - 5)
    assert keeper.get().access_key_id == "first"
    monkeypatch.setattr(time, "time", lambda: now + 3600 - EARLY + 5)
    assert keeper.get().access_key_id == "second"
    assert provider.asked == 2


def test_the_present_ones_do_while_no_others_are_to_be_had_but_not_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = Changing(lasting("first", EARLY - 10), OSError("gone"))
    keeper, now = Keeper(provider), time.time()
    assert keeper.get().access_key_id == "first"
    monkeypatch.setattr(time, "time", lambda: now + 60)
    assert [keeper.get().access_key_id for _ in range(5)] == ["first"] * 5
    assert provider.asked == 2, "a provider in trouble is not asked at every request"
    monkeypatch.setattr(time, "time", lambda: now + EARLY)
    with pytest.raises(OSError, match="gone"):
        keeper.get()


def test_refused_credentials_are_replaced_if_there_are_others() -> None:
    keeper = Keeper(Changing(lasting("first", 3600), lasting("second", 3600)))
    first = keeper.get()
    assert keeper.refused(first)
    assert keeper.refused(first), "another thread was refused with the same ones"
    second = keeper.get()
    assert second.access_key_id == "second"
    assert not keeper.refused(second)


def test_a_file_is_read_anew_each_time(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    provider = pickle.loads(pickle.dumps(provider_of(f"file:{path}")))  # noqa: S301 - its own
    with pytest.raises(OSError, match=r"keys\.json"):
        provider()
    path.write_text('{"AccessKeyId": "a", "AccessKeySecret": "b"}')
    assert provider() == Credentials("a", Secret("b"))
    path.write_text(
        '{"AccessKeyId": "a", "AccessKeySecret": "b", "SecurityToken": "c", "Expiration": "2026-01-31T12:00:00Z"}'
    )
    end = datetime(2026, 1, 31, 12, tzinfo=timezone.utc).timestamp()
    assert provider() == Credentials("a", Secret("b"), Secret("c"), end)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "opensesame",
        '["opensesame"]',
        '{"AccessKeyId": "opensesame"}',
        '{"AccessKeyId": "opensesame", "AccessKeySecret": 7}',
        '{"AccessKeyId": "a", "AccessKeySecret": "opensesame", "Expiration": "tomorrow"}',
        b"\xff\xfe",
    ],
)
def test_what_is_no_credentials_is_refused_without_showing_it(tmp_path: Path, text: str | bytes) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=r"keys.json holds no credentials: expected") as error:
        FromFile(str(path))()
    assert "opensesame" not in str(error.value)


@pytest.mark.parametrize("text", ["keys.json", "file:", "file:relative.json", "ecs:", "vault:x"])
def test_a_provider_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected file:/path"):
        provider_of(text)


@pytest.fixture
def metadata() -> Iterator[str]:
    """An instance's metadata in its strict mode: no answer without a session's token."""

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            ok = self.path == "/latest/api/token" and self.headers["X-aliyun-ecs-metadata-token-ttl-seconds"]
            self.answer(200 if ok else 403, b"session")

        def do_GET(self) -> None:
            if self.headers["X-aliyun-ecs-metadata-token"] != "session":
                self.answer(403, b"")
            elif self.path != "/latest/meta-data/ram/security-credentials/reader":
                self.answer(404, b"")
            else:
                keys = {"AccessKeyId": "STS.a", "AccessKeySecret": "b", "SecurityToken": "c", "Code": "Success"}
                self.answer(200, json.dumps({**keys, "Expiration": "2026-01-31T12:00:00Z"}).encode())

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_an_instance_s_role_gives_temporary_credentials(metadata: str) -> None:
    found = FromRole("reader", metadata)()
    assert (found.access_key_id, found.access_key_secret.reveal(), found.security_token.reveal()) == ("STS.a", "b", "c")
    assert found.expires is not None
    with pytest.raises(ConfigError, match="no such RAM role"):
        FromRole("other", metadata)()
    with pytest.raises(OSError, match="did not answer"):
        FromRole("reader", "http://127.0.0.1:1")()


def test_no_secret_is_in_a_repr() -> None:
    assert "open" not in repr(lasting("id", 1))
