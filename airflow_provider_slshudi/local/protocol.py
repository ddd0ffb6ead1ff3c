"""uvicorn's HTTP protocol with two additions: requests know their connection, and it refuses endless heads."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

TRANSPORT = "slshudi.transport"
"""The extension of a request's scope that holds its connection."""

LARGEST_HEAD = 64 * 1024
"""Bytes of a request's line and headers."""


class Protocol(HttpToolsProtocol):
    """Uses httptools, since h11 does not take the absolute-form targets that clients send to a proxy."""

    _head = 0
    _in_body = False

    def on_message_begin(self) -> None:
        """A request starts."""
        super().on_message_begin()
        self.scope["extensions"] = {TRANSPORT: {"of": self.transport}}

    def on_headers_complete(self) -> None:
        """Its head is complete."""
        super().on_headers_complete()
        self._in_body = True

    def on_message_complete(self) -> None:
        """Its body is complete."""
        super().on_message_complete()
        self._in_body, self._head = False, 0

    def data_received(self, data: bytes) -> None:
        """Bytes from the client; the parser would collect a head of any length."""
        super().data_received(data)
        if not self._in_body:
            self._head += len(data)
            if self._head > LARGEST_HEAD + len(data):
                self.transport.abort()
