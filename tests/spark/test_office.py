"""The address at which a task is found, on machines that are network namespaces."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.namespaces import unshared

ASKED = """
from airflow_provider_slshudi.spark.keyserver import listening
from airflow_provider_slshudi.spark.office import _this_host
host = _this_host()
print(host, listening(lambda said: said.encode(), host, host, "0").place.ask("heard").decode())
"""
IPV4, IPV6, LINK = "10.1.2.3/24", "fd00:1::3/64", "169.254.7.3/16"


@pytest.mark.parametrize(
    "addresses, found",
    [
        ([IPV4, IPV6], "10.1.2.3"),
        ([IPV6], "fd00:1::3"),
        pytest.param([LINK, IPV6], "fd00:1::3", id="as on EKS with IPv6"),
        ([], "127.0.0.1"),
        ([LINK], "127.0.0.1"),
    ],
)
def test_a_task_is_found_by_an_address_that_others_reach(addresses: list[str], found: str) -> None:
    commands = [f"ip link set {name} up" for name in ("lo", "eth0", "other")]
    commands.insert(1, "ip link add eth0 type veth peer name other")
    for address in addresses:
        commands += [
            f"ip address add {address} dev eth0 nodad",
            f"ip {'-6' if ':' in address else ''} route add default dev eth0",
        ]
    script = " && ".join([*commands, f'exec {sys.executable} -c "$0"'])
    told = subprocess.run([*unshared("net"), "sh", "-c", script, ASKED], capture_output=True, text=True)
    assert told.stdout.split() == [found, "heard"], told.stderr
