"""`python -m tests.deadmount FOLDER`: a file system over a folder that takes each request and answers none; root.

As a mount of NFS, or of an object store, whose other side is gone: the kernel ends no process that waits for it.
https://docs.kernel.org/filesystems/fuse.html
"""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DEVICE = Path("/dev/fuse")
_HEADER = struct.Struct("<IIQQIIII")
_ANSWER = struct.Struct("<IiQ")
_INIT = 26
# The version, then limits that only have to be there.
_LIMITS = struct.pack("<IIIIHHIIHHI7I", 7, 31, 65536, 0, 12, 10, 65536, 1, 0, 0, 0, *[0] * 7)


@contextmanager
def dead_mount(folder: Path) -> Iterator[None]:
    """Whoever asks for something in the folder waits until the block ends."""
    command = [sys.executable, "-m", "tests.deadmount", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == "mounted\n"
        try:
            yield
        finally:
            # Those who wait get an error.
            daemon.kill()
            daemon.wait()
            subprocess.run(["umount", "-l", str(folder)], check=True)


def main() -> None:
    """Mounts, and takes requests."""
    device = os.open(DEVICE, os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    if libc.mount(b"dead", sys.argv[1].encode(), b"fuse", 0, options.encode()):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), sys.argv[1])
    print("mounted", flush=True)
    while True:
        request = os.read(device, 1 << 20)
        _, kind, number, *_ = _HEADER.unpack(request[: _HEADER.size])
        # Without an answer to the first one the mount is none yet, and waiting for it can be ended.
        if kind == _INIT:
            os.write(device, _ANSWER.pack(_ANSWER.size + len(_LIMITS), 0, number) + _LIMITS)


if __name__ == "__main__":
    main()
