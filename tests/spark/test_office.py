"""The address at which a task is found, on machines that are network namespaces."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.namespaces import unshared

ASKED = """
from airflow_provider_slshudi.spark.keyserver import listening
from airflow_provider_slshudi.spark.driver_endpoint import _this_host
host = _this_host()
print(host, listening(lambda said: said.encode(), host, host, "0").place.ask("heard").decode())
"""
IPV4, IPV6, LINK = "10.1.2.3/24", "fd00:1::3/64", "169.254.7.3/16"


@pytest.mark.parametrize(
    "routed, named, found",
    [
        ([IPV4, IPV6], "", "10.1.2.3"),
        ([IPV6], "", "fd00:1::3"),
        pytest.param([LINK, IPV6], "", "fd00:1::3", id="as on EKS with IPv6"),
        ([], "", "127.0.0.1"),
        ([LINK], "", "127.0.0.1"),
        pytest.param([IPV6], "10.9.9.9", "10.9.9.9", id="no way to others by IPv4"),
        ([], "fd00:2::3", "fd00:2::3"),
    ],
)
def test_a_task_is_found_by_an_address_that_others_reach(
    tmp_path: Path, routed: list[str], named: str, found: str
) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n{named or '127.0.0.1'} node7\n")
    commands = ["hostname node7", f"mount --bind {hosts} /etc/hosts", "ip link add eth0 type veth peer name other"]
    commands += [f"ip link set {name} up" for name in ("lo", "eth0", "other")]
    commands += [f"ip address add {address} dev eth0 nodad" for address in filter(None, [*routed, named])]
    commands += [f"ip {'-6' if ':' in address else ''} route add default dev eth0" for address in routed]
    script = " && ".join([*commands, f'exec {sys.executable} -c "$0"'])
    apart = [*unshared("net"), "unshare", "--mount", "--uts"]
    told = subprocess.run([*apart, "sh", "-c", script, ASKED], capture_output=True, text=True)
    assert told.stdout.split() == [found, "heard"], told.stderr
