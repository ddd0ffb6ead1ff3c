"""A driver's secret is told to those with its token, over TLS, and to nobody else."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider_slshudi.spark import keyserver
from airflow_provider_slshudi.spark.keyserver import KeyServer
from tests.waiting import until

SECRET = b"the log service's key"


@pytest.fixture
def server() -> Iterator[KeyServer]:
    made = KeyServer(lambda question: SECRET + question.encode(), "127.0.0.1", "127.0.0.1")
    yield made
    made.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyserver, "_PAUSE_SECONDS", 0.01)


def test_whoever_has_the_token_is_told_also_many_at_once(server: KeyServer) -> None:
    told: list[bytes] = []
    asking = [threading.Thread(target=lambda: told.append(server.place.ask())) for _ in range(100)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert told == [SECRET] * 100


@pytest.mark.parametrize("token", [bytes(32), b"\x01" * 32])
def test_another_token_is_told_nothing(server: KeyServer, token: bytes) -> None:
    with pytest.raises(
        OSError, match=rf"127.0.0.1:{server.place.address.port} \(spark.slshudi.access.port.*cannot be used"
    ):
        server.place.address.ask(token)


def test_a_question_is_answered(server: KeyServer) -> None:
    assert server.place.ask(" who?") == SECRET + b" who?"
    with pytest.raises(OSError, match="cannot be used"):
        server.place.ask("long" * 2000)


def test_an_answer_that_is_cut_short_is_none(server: KeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ssl.SSLSocket.sendall

    def cut(self: ssl.SSLSocket, data: bytes, flags: int = 0) -> None:
        whole(self, data[:-1] if SECRET in data else data, flags)

    monkeypatch.setattr(ssl.SSLSocket, "sendall", cut)
    with pytest.raises(OSError, match="its answer was cut short"):
        server.place.ask()


def test_those_who_wait_for_one_answer_leave_room_for_the_other(
    server: KeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = threading.Event()

    def never(_: str) -> bytes:
        waits.wait()
        return b"late"

    other = server.also(never)
    monkeypatch.setattr(keyserver, "_TRIES", 1)

    def ask() -> None:
        with suppress(OSError):
            other.ask()

    asking = [threading.Thread(target=ask) for _ in range(keyserver._AT_ONCE + 40)]
    for thread in asking:
        thread.start()
    try:
        assert until("an answer", lambda: server.place.ask()) == SECRET
    finally:
        waits.set()
        for thread in asking:
            thread.join()


def test_nothing_that_passes_the_wire_is_the_secret_or_the_token(server: KeyServer) -> None:
    """Somebody who only listens, at the wire, has neither, not even with the certificate's file at hand."""
    seen = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as between:

        def pump(source: socket.socket, sink: socket.socket) -> None:
            with suppress(OSError):
                while part := source.recv(65536):
                    seen.extend(part)
                    sink.sendall(part)
                sink.shutdown(socket.SHUT_WR)

        def carry() -> None:
            client, _ = between.accept()
            with client, socket.create_connection(("127.0.0.1", server.place.address.port)) as behind:
                back = threading.Thread(target=pump, args=(behind, client))
                back.start()
                pump(client, behind)
                back.join()

        carrying = threading.Thread(target=carry)
        carrying.start()
        assert replace(server.place.address, port=between.getsockname()[1]).ask(server.place.token) == SECRET
        carrying.join()
    assert len(seen) > 500
    assert SECRET not in seen and server.place.token not in seen


def test_a_driver_with_another_certificate_is_not_asked(server: KeyServer) -> None:
    other = KeyServer(lambda question: b"a lie", "127.0.0.1", "127.0.0.1")
    try:
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            replace(server.place.address, port=other.place.address.port).ask(server.place.token)
    finally:
        other.close()


def test_an_old_protocol_is_refused(server: KeyServer) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection(("127.0.0.1", server.place.address.port)) as plain, pytest.raises(OSError):
        context.wrap_socket(plain)


def test_those_who_say_nothing_keep_nobody_from_being_told(server: KeyServer) -> None:
    with suppress(OSError):
        silent = [socket.create_connection(("127.0.0.1", server.place.address.port)) for _ in range(30)]
        assert server.place.ask() == SECRET
        for connection in silent:
            connection.close()


def test_strangers_who_send_a_byte_now_and_then_are_shown_out(
    server: KeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyserver, "_ASKED_SECONDS", 0.5)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", server.place.address.port)) as plain,
        context.wrap_socket(plain) as connection,
    ):
        connection.settimeout(0.1)

        def shown_out() -> bool:
            try:
                connection.sendall(b"x")
                return not connection.recv(1)
            except TimeoutError:
                return False
            except OSError:
                return True

        until("the stranger is shown out", shown_out, 20)


def test_a_server_that_gets_no_thread_for_one_asker_goes_on(server: KeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    start, refused = threading.Thread.start, list[threading.Thread]()

    def scarce(thread: threading.Thread) -> None:
        if not refused:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", scarce)
    monkeypatch.setattr(keyserver, "SECONDS", 1.0)
    assert server.place.ask() == SECRET
    assert refused


def test_a_closed_server_leaves_nobody_waiting() -> None:
    made = KeyServer(lambda question: SECRET, "127.0.0.1", "127.0.0.1")
    with socket.create_connection(("127.0.0.1", made.place.address.port)) as silent:
        until("it is let in", lambda: made._askers)
        made.close()
        silent.settimeout(2)
        with suppress(ConnectionError):
            assert silent.recv(1) == b""


@pytest.mark.parametrize("bind", ["::", "localhost"])
def test_any_way_to_name_an_address_will_do(bind: str) -> None:
    made = KeyServer(lambda question: SECRET, "127.0.0.1", bind)
    assert made.place.address.ask(made.place.token) == SECRET
    made.close()


def test_a_fixed_port_that_somebody_has_is_passed_over(server: KeyServer) -> None:
    second = KeyServer(lambda question: b"second", "127.0.0.1", "127.0.0.1", server.place.address.port)
    assert server.place.address.port < second.place.address.port <= server.place.address.port + 16
    assert second.place.address.ask(second.place.token) == b"second"
    second.close()


def test_a_closed_server_tells_nothing_and_gives_its_port_back() -> None:
    made = KeyServer(lambda question: SECRET + question.encode(), "127.0.0.1", "127.0.0.1")
    made.close()
    with pytest.raises(OSError, match="cannot be used from "):
        made.place.address.ask(made.place.token)
    again = KeyServer(lambda question: SECRET + question.encode(), "127.0.0.1", "127.0.0.1", made.place.address.port)
    assert again.place.ask() == SECRET
    again.close()


def test_the_private_key_is_in_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = KeyServer(lambda question: SECRET + question.encode(), "127.0.0.1", "127.0.0.1")
    made.close()
    assert not list(tmp_path.iterdir())


def test_what_travels_shows_neither_token_nor_secret(server: KeyServer) -> None:
    assert server.place.address.certificate not in repr(server.place.address)
