"""`python -m tests.hosts.relay PID PORT...`: a machine's only way to the services of this one.

It listens on these ports in the network of process PID, and goes on to the same ports here. Where it stands still, all
that the machine sends and waits for is lost on the way, as behind a cut cable.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import socket
import struct
import sys
from contextlib import suppress
from functools import partial

LISTENS = "relay listens"
_LIBC = ctypes.CDLL(None, use_errno=True)
_SET_FLAGS, _UP = 0x8914, 0x1


def listeners(pid: int, ports: list[int]) -> list[socket.socket]:
    """Sockets that listen in the network of another process, whose loopback device this starts."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    _enter(f"/proc/{pid}/ns/net")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as device:
            fcntl.ioctl(device, _SET_FLAGS, struct.pack("16sH14x", b"lo", _UP))
        return [socket.create_server(("127.0.0.1", port)) for port in ports]
    finally:
        _set_network(home)


def _enter(namespace: str) -> None:
    _set_network(os.open(namespace, os.O_RDONLY))


def _set_network(file: int) -> None:
    if _LIBC.setns(file, 0):
        raise OSError(ctypes.get_errno(), "setns")
    os.close(file)


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while piece := await source.read(1 << 16):
            target.write(piece)
            await target.drain()
    with suppress(OSError):
        target.close()


async def _pass_on(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        there, back = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        writer.close()
        return
    await asyncio.gather(_copy(reader, back), _copy(there, writer))


async def _serve(listening: list[socket.socket]) -> None:
    for listener in listening:
        port = listener.getsockname()[1]
        await asyncio.start_server(partial(_pass_on, port), sock=listener)
    print(LISTENS, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(listeners(int(sys.argv[1]), [int(port) for port in sys.argv[2:]])))
