"""A machine made of the kernel's namespaces: processes, network, name and disk of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from airflow_provider_slshudi.spark.runtime import cache_dir
from tests.hosts.relay import LISTENS
from tests.machine import ROOT
from tests.points import armed_in
from tests.waiting import until
from tests.worlds.host import Steps, clock_library

POSSIBLE = os.geteuid() == 0 and bool(shutil.which("unshare")) and bool(shutil.which("nsenter"))
"""Making namespaces takes root."""
_SET_UP = """set -e
hostname "$1"
mount -t tmpfs none "$2"
mkdir "$2/tmp" "$2/home"
if [ -n "$3" ]; then echo "$3" > "$2/boot"; mount --bind "$2/boot" /proc/sys/kernel/random/boot_id; fi
echo ready
exec sleep infinity
"""


class Machine:
    """One machine.

    Args:
        folder: where its disk is mounted, which nobody else sees and which is gone with it.
        name: its host name.
        first: the first of its processes, as this machine numbers them.
        relay: its way to the services.
        shared: whether its processes are numbered with all others here, as those of one pod's containers may be.
    """

    def __init__(self, folder: Path, name: str, first: int, relay: subprocess.Popen[str], shared: bool) -> None:
        self.folder, self.name, self.first, self.relay, self.shared = folder, name, first, relay, shared

    @property
    def prefix(self) -> list[str]:
        """What to put before a command for it to run here."""
        kinds = ["--net", "--uts", "--mount", *([] if self.shared else ["--pid"])]
        return ["nsenter", f"--target={self.first}", *kinds, f"--wdns={ROOT}"]

    def steps(
        self,
        setup: Mapping[str, Any],
        told: Path,
        secrets: Mapping[str, str],
        points: Path | None = None,
        ahead: int = 0,
        temporary: Path | None = None,
    ) -> Steps:
        """Starts steps here (see `tests.exact.step`), with a clock that is so many seconds ahead."""
        environment = {
            **os.environ,
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(temporary or self.folder / "tmp"),
            "SLSHUDI_CACHE": str(cache_dir()),
            **(armed_in(points) if points else {}),
            **secrets,
        }
        if ahead:
            environment |= {"LD_PRELOAD": str(clock_library(told.parent)), "WORLDS_CLOCK_AHEAD": str(ahead)}
        return Steps(setup, told, told.with_suffix(".log"), environment, self.prefix)

    def cut_off(self) -> None:
        """Nothing reaches it any more, and nothing that it sends arrives."""
        self.relay.send_signal(signal.SIGSTOP)

    def reconnect(self) -> None:
        """All that was on its way arrives."""
        self.relay.send_signal(signal.SIGCONT)

    def stand_still(self) -> None:
        """All its processes stop, as in a virtual machine that is moved to another host."""
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                process.suspend()

    def go_on(self) -> None:
        """They go on."""
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def vanish(self) -> None:
        """Its power fails, and nobody sees its disk again."""
        processes = self._processes()
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=20)
        self.relay.kill()

    def _processes(self) -> list[psutil.Process]:
        """All that see its disk: each in its mounts."""
        mine = _mounts(self.first)
        return [process for process in psutil.process_iter() if mine and _mounts(process.pid) == mine]


@contextmanager
def machine(
    folder: Path, ports: Sequence[int], name: str = "worker", boot: str = "", shared: bool = False
) -> Iterator[Machine]:
    """A machine that reaches these ports of this one's loopback device, and nothing else; it is gone after the block.

    Args:
        folder: see `Machine`.
        ports: where services listen.
        name: its host name.
        boot: the id of its boot, if it is not to be this one's: containers of one host have the same.
        shared: see `Machine`.
    """
    folder.mkdir(parents=True)
    kinds = ["--net", "--uts", "--mount", *([] if shared else ["--pid", "--fork", "--kill-child", "--mount-proc"])]
    command = ["unshare", *kinds, "sh", "-c", _SET_UP, "sh", name, str(folder), boot]
    outer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert outer.stdout is not None
    try:
        assert outer.stdout.readline() == "ready\n", "the machine did not start"
        first = outer.pid if shared else psutil.Process(outer.pid).children()[0].pid
        relaying = [sys.executable, "-m", "tests.hosts.relay", str(first), *map(str, ports)]
        with subprocess.Popen(relaying, stdout=subprocess.PIPE, text=True, cwd=ROOT) as relay:
            assert relay.stdout is not None
            made = Machine(folder, name, first, relay, shared)
            try:
                assert relay.stdout.readline().strip() == LISTENS
                yield made
            finally:
                made.vanish()
    finally:
        outer.kill()
        outer.wait()
        outer.stdout.close()
        until("its disk is gone", lambda: not any(folder.iterdir()))


def _mounts(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/mnt").readlink())
    except OSError:
        return ""
