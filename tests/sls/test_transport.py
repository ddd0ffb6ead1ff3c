"""What can happen between here and there: kept connections, proxies, certificates, answers without an end."""

from __future__ import annotations

import base64
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from airflow_provider_slshudi.sls import transport
from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.sls.credentials import Credentials
from airflow_provider_slshudi.sls.faults import UNREACHABLE
from airflow_provider_slshudi.sls.transport import Answer, NoAnswer, Transport
from airflow_provider_slshudi.system.secrets import Secret
from tests.services import closed_port

KEY = Credentials("id", Secret("opensesame"))
Serve = Callable[[socket.socket], None]


class Peer:
    """Something that listens, and does with every request on a connection what a scenario says."""

    def __init__(self, *answers: Serve) -> None:
        self.answers, self.connections, self.requests = list(answers), 0, list[bytes]()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, IndexError):  # the other side has gone, or there is nothing more to say
            while request := connection.recv(65536):
                self.requests.append(request)
                self.answers.pop(0)(connection)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def peer() -> Iterator[Callable[..., Peer]]:
    peers: list[Peer] = []

    def start(*answers: Serve) -> Peer:
        peers.append(Peer(*answers))
        return peers[-1]

    yield start
    for each in peers:
        each.close()


def says(body: bytes, *headers: bytes, length: int | None = None) -> Serve:
    announced = b"content-length: %d" % (len(body) if length is None else length)
    head = b"\r\n".join([b"HTTP/1.1 200 OK", announced, *headers])
    return lambda connection: connection.sendall(head + b"\r\n\r\n" + body)


def trickles(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
    for _ in range(1000):
        connection.sendall(b"x")
        time.sleep(0.05)


def silent(connection: socket.socket) -> None:
    time.sleep(5)


def ends(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)


def get(peer: Peer, times: int = 1) -> list[Answer]:
    way = Transport(SlsConnection(peer.endpoint, "id", Secret("opensesame")), "project")
    return [way.get("/logstores/l/shards", {"type": "log"}, {}, KEY) for _ in range(times)]


def test_one_connection_serves_many_requests(peer: Callable[..., Peer]) -> None:
    there = peer(*[says(b"abc", b"X-Log-Count: 7")] * 5)
    answers = get(there, 5)
    assert {(answer.status, bytes(answer.body), answer.headers["x-log-count"]) for answer in answers} == {
        (200, b"abc", "7")
    }
    assert there.connections == 1
    assert b"Host: project.127.0.0.1\r\n" in there.requests[0], "where there is no name, the header holds the project"


@pytest.mark.parametrize(
    ("serve", "code"),
    [
        (says(b"abc", length=10), "ReadTimeout"),
        (says(b"", length=2**40), "AnswerTooLarge"),
        (trickles, "AnswerTooSlow"),
        (silent, "ReadTimeout"),
        (ends, "ConnectionFault"),
        (lambda connection: connection.sendall(b"\x00\x01 no HTTP\r\n\r\n"), "ConnectionFault"),
    ],
)
def test_what_is_no_whole_answer_ends_soon_and_leaves_no_connection_behind(
    peer: Callable[..., Peer], serve: Serve, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "TIMEOUT", 0.5)
    monkeypatch.setattr(transport, "LONGEST", 0.3)
    there = peer(serve, says(b"whole"))
    way = Transport(SlsConnection(there.endpoint, "id", Secret("opensesame")), "project")
    started = time.monotonic()
    with pytest.raises(NoAnswer) as error:
        way.get("/", {}, {}, KEY)
    assert error.value.code == code
    assert time.monotonic() - started < 2
    assert "opensesame" not in str(error.value)
    assert way.get("/", {}, {}, KEY).body == b"whole"
    assert there.connections == 2


def test_nobody_is_told_apart_from_somebody_who_hangs_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with closed_port() as port:
        endpoint = f"127.0.0.1:{port}"
        for proxy in ("", f"http://{endpoint}"):
            monkeypatch.setenv("http_proxy", proxy)
            monkeypatch.setenv("no_proxy", "")
            host = "sls.example.com" if proxy else endpoint
            way = Transport(SlsConnection(host, "id", KEY.access_key_secret), "project")
            with pytest.raises(NoAnswer) as error:
                way.get("/", {}, {}, KEY)
            assert error.value.code == UNREACHABLE


def test_an_answer_cut_short_by_its_end_is_a_fault(peer: Callable[..., Peer]) -> None:
    def cut(connection: socket.socket) -> None:
        says(b"abc", length=10)(connection)
        ends(connection)

    with pytest.raises(NoAnswer) as error:
        get(peer(cut))
    assert error.value.code in ("AnswerCut", "ConnectionFault")


def test_an_answer_without_a_length_is_bounded(peer: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "LARGEST", 1000)

    def endless(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(100):
            connection.sendall(b"64\r\n" + b"x" * 100 + b"\r\n")
        connection.sendall(b"0\r\n\r\n")

    with pytest.raises(NoAnswer) as error:
        get(peer(endless))
    assert error.value.code == "AnswerTooLarge"


def test_the_environment_s_proxy_is_gone_through_and_its_exceptions_kept(
    peer: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = peer(says(b"by proxy"))
    monkeypatch.setenv("http_proxy", f"http://me:p%40ss@{there.endpoint}")
    monkeypatch.setenv("no_proxy", "elsewhere.example.com")
    connection = SlsConnection("sls.example.com", "id", Secret("opensesame"))
    assert Transport(connection, "project").get("/a", {"b": "c d"}, {}, KEY).body == b"by proxy"
    assert there.requests[0].startswith(b"GET http://project.sls.example.com:80/a?b=c+d HTTP/1.1\r\n")
    assert b"Host: project.sls.example.com\r\n" in there.requests[0]
    assert base64.b64encode(b"me:p@ss") in there.requests[0]
    monkeypatch.setenv("no_proxy", "example.com")
    way = Transport(connection, "project")
    with pytest.raises(NoAnswer):
        way.get("/a", {}, {}, KEY)
    assert len(there.requests) == 1
    assert way.requests == 1, "what was not answered was sent all the same"
