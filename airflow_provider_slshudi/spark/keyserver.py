"""Tells processes of a job secrets, over TLS with a certificate that is made for it and known to no other.

A process that has the token is answered, as long as the server serves.
"""

from __future__ import annotations

import errno
import hmac
import json
import os
import secrets
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path

from airflow_provider_slshudi.exceptions import ConfigError

PORT = "spark.slshudi.access.port"
"""Spark's setting for the first port at which a job's processes are told secrets; any that is free by default."""
TOKEN_BYTES = 32
SECONDS = 10.0
"""How long an asker waits for each part of the answer."""
_ASKED_SECONDS = 5.0
"""So long an asker may take for the whole of its question."""
_AT_ONCE = 256
_TURN_SECONDS = 2.0
_PORTS = 17
"""So many ports are tried from one that is fixed, as Spark does for its own (`spark.port.maxRetries`)."""
_LONGEST = 4096
_LENGTH_BYTES = 4
_TRIES = 3
_PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class Address:
    """Where secrets are told, and the certificate (PEM) that proves it."""

    host: str
    port: int
    certificate: str = field(repr=False)

    def ask(self, token: bytes, question: str = "") -> bytes:
        """The answer to a question of one line.

        Raises:
            OSError: no server answers with this certificate, or the token is not the one that is wanted.
        """
        for retries in reversed(range(_TRIES)):
            try:
                return self._asked(token, question)
            except OSError as error:
                if not retries:
                    raise OSError(
                        f"{self.host}:{self.port} ({PORT}; any port where it is not set) cannot be used from "
                        f"{socket.gethostname()}: {error}"
                    ) from error
                time.sleep(_PAUSE_SECONDS)
        raise AssertionError

    def _asked(self, token: bytes, question: str) -> bytes:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        # The certificate itself is what is known, not the names in it.
        context.check_hostname = False
        context.load_verify_locations(cadata=self.certificate)
        with (
            socket.create_connection((self.host, self.port), SECONDS) as plain,
            context.wrap_socket(plain) as connection,
            connection.makefile("rb") as answer,
        ):
            connection.sendall(token + question.encode() + b"\n")
            reply = answer.read()
        if not reply:
            raise ConnectionError("it refused the token, or is too busy")
        # Python takes a connection that was cut for one that has ended.
        if len(reply) - _LENGTH_BYTES != int.from_bytes(reply[:_LENGTH_BYTES], "big"):
            raise ConnectionError("its answer was cut short")
        return reply[_LENGTH_BYTES:]


@dataclass(frozen=True)
class Place:
    """An address, with the token that it wants."""

    address: Address
    token: bytes = field(repr=False)

    def ask(self, question: str = "") -> bytes:
        """As `Address.ask`."""
        return self.address.ask(self.token, question)

    def to_json(self) -> str:
        """As text, which is a secret."""
        return json.dumps({**vars(self.address), "token": self.token.hex()})

    @classmethod
    def from_json(cls, text: str) -> Place:
        """The place that `to_json` wrote."""
        fields = json.loads(text)
        token = bytes.fromhex(fields.pop("token"))
        return cls(Address(**fields), token)


class KeyServer:
    """Answers processes that have the token of its `place`, from the start until `close`.

    Args:
        answer: gives the answer, not empty, to a question; in a thread for each.
        host: the name by which others reach this machine.
        bind: the address to listen at.
        port: the first port to try, 0 for any that is free.
        longest: the bytes of the longest question.

    Raises:
        OSError: no port is free.
    """

    def __init__(
        self, answer: Callable[[str], bytes], host: str, bind: str, port: int = 0, longest: int = _LONGEST
    ) -> None:
        self._longest = longest
        certificate, self._context = _identity()
        self._listener = _listener(bind, port)
        self._address = Address(host, self._listener.getsockname()[1], certificate)
        self._answers: dict[bytes, tuple[Callable[[str], bytes], threading.BoundedSemaphore]] = {}
        self.place = self.also(answer)
        self._room = threading.BoundedSemaphore(_AT_ONCE)
        self._askers: set[ssl.SSLSocket] = set()
        self._closed = False
        threading.Thread(target=self._serve, name="slshudi-keys", daemon=True).start()

    def also(self, answer: Callable[[str], bytes]) -> Place:
        """Gives other answers to those with another token; returns where."""
        token = secrets.token_bytes(TOKEN_BYTES)
        # So many may wait for one of the answers that the others have room.
        self._answers[token] = answer, threading.BoundedSemaphore(_AT_ONCE // 2)
        return Place(self._address, token)

    def close(self) -> None:
        """Tells nothing any more."""
        self._closed = True
        with suppress(OSError):
            # Wakes the thread that waits for a caller.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for asker in list(self._askers):
            with suppress(OSError):
                # Not TLS's own, which would take the connection from the thread that uses it.
                socket.socket.shutdown(asker, socket.SHUT_RDWR)

    def _serve(self) -> None:
        while not self._closed:
            self._room.acquire()
            try:
                self._let_in(self._listener.accept()[0])
            except (OSError, RuntimeError):
                self._room.release()
                # Out of file descriptors or threads, say: others wait in the backlog.
                time.sleep(0.0 if self._closed else 0.1)

    def _let_in(self, plain: socket.socket) -> None:
        plain.settimeout(_ASKED_SECONDS)
        asker = self._context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        self._askers.add(asker)
        try:
            threading.Thread(target=self._answer, args=(asker,), daemon=True).start()
        except RuntimeError:
            self._askers.discard(asker)
            asker.close()
            raise

    def _answer(self, asker: ssl.SSLSocket) -> None:
        try:
            with asker, suppress(OSError):
                asker.do_handshake()
                reply = self._told(_question(asker, time.monotonic() + _ASKED_SECONDS, self._longest))
                if reply and not self._closed:
                    asker.settimeout(SECONDS)
                    asker.sendall(len(reply).to_bytes(_LENGTH_BYTES, "big") + reply)
        finally:
            self._askers.discard(asker)
            self._room.release()

    def _told(self, given: bytes) -> bytes:
        """The answer to a question after its token; empty where no place has that token, or too many wait already."""
        token, question = given[:TOKEN_BYTES], given[TOKEN_BYTES:]
        # All are compared, so the time that it takes tells nothing.
        places = [place for expected, place in self._answers.items() if hmac.compare_digest(token, expected)]
        for answer, room in places:
            if room.acquire(timeout=_TURN_SECONDS):
                try:
                    return answer(question.decode("utf-8", "replace"))
                finally:
                    room.release()
        return b""


def listening(answer: Callable[[str], bytes], host: str, bind: str, wanted: str, longest: int = _LONGEST) -> KeyServer:
    """A KeyServer at the port that `PORT` names, or one of the next.

    Args:
        answer: gives the answer to a question.
        host: the name or address that clients are told.
        bind: the address to listen at.
        wanted: what `PORT` says; empty: any port.
        longest: the most bytes of a question.

    Raises:
        ConfigError: the port cannot be used.
    """
    try:
        return KeyServer(answer, host, bind, int(wanted), longest)
    except (OSError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"this machine cannot listen at {bind}, port {wanted} or one of the next, to give a job's processes what "
            f"they need: {error}",
            source="spark.conf",
            field=PORT,
            value=wanted,
        ) from error


def _question(connection: ssl.SSLSocket, deadline: float, longest: int) -> bytes:
    """Token and question, without the end of the line. Raises OSError where they do not come in time."""
    received = b""
    # The token may hold any byte.
    while b"\n" not in received[TOKEN_BYTES:]:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        more = connection.recv(_LONGEST)
        received += more
        if not more or len(received) > TOKEN_BYTES + longest + 1:
            raise ConnectionError("no question")
    return received[: received.index(b"\n", TOKEN_BYTES)]


def _listener(bind: str, port: int) -> socket.socket:
    family = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
    both = family == socket.AF_INET6 and bind in ("::", "0::0") and socket.has_dualstack_ipv6()
    for number in range(port, port + _PORTS if port else 1):
        try:
            return socket.create_server((bind, number), family=family, backlog=1024, dualstack_ipv6=both)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or number == port + _PORTS - 1:
                raise
    raise AssertionError


def _identity() -> tuple[str, ssl.SSLContext]:
    """A new certificate, and the context of a server that has its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "slshudi job")])
    # Clocks of a cluster's machines may differ by days, and a driver may work for days.
    now, around = datetime.now(timezone.utc), timedelta(days=366)
    number, from_, to = x509.random_serial_number(), now - around, now + around
    builder = x509.CertificateBuilder(name, name, key.public_key(), number, from_, to)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    plain = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # OpenSSL reads a key from a file only; it is gone before a process can connect, and good for this server alone.
    handle, path = tempfile.mkstemp(prefix="slshudi-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(certificate + private)
        context.load_cert_chain(path)
    finally:
        with suppress(OSError):
            Path(path).unlink()
    return certificate.decode(), context
