"""Which name nodes a name service of HDFS has, as `hdfs_native` takes them.

It connects to the first one without a time limit, so a machine that is switched off would keep each process for two
minutes before it asks the next; and of Hadoop's settings it takes names and addresses as they are written.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree

FILES = "core-site.xml", "hdfs-site.xml"
_CONNECT_SECONDS = 2.0
_ROUNDS = 6
"""About 40 seconds, nearly as a client of an object store asks. Its own 15 are four minutes."""
_VARIABLE = re.compile(r"\$\{([^}$\s]+)\}")
_DEEPEST = 20


def settings(service: str) -> dict[str, str]:
    """Settings of hdfs_native for a name service or a host and port: those nodes first that can be reached now.

    Raises:
        OSError: an address has a variable that Hadoop's settings do not explain.
    """
    nodes = _nodes(service)
    made = {"dfs.client.failover.max.attempts": str(_ROUNDS * max(1, len(nodes)))}
    if nodes:
        reached = sorted(nodes, key=lambda node: not _listens(nodes[node]))
        made[f"dfs.ha.namenodes.{service}"] = ",".join(reached)
        # It would draw lots.
        made[f"dfs.client.failover.random.order.{service}"] = "false"
        made |= {f"dfs.namenode.rpc-address.{service}.{node}": address for node, address in nodes.items()}
    return made


def _nodes(service: str) -> dict[str, str]:
    """The addresses of a name service's nodes by their names, in the order of Hadoop's settings; empty without any."""
    told = _told()
    names = [name.strip() for name in _value(told, f"dfs.ha.namenodes.{service}").split(",")]
    addresses = {name: _value(told, f"dfs.namenode.rpc-address.{service}.{name}") for name in names}
    return {name: address for name, address in addresses.items() if address}


def _told() -> dict[str, str]:
    """Hadoop's settings where the client looks for them; what is no settings at all it tells itself."""
    home = os.environ.get("HADOOP_HOME")
    folder = os.environ.get("HADOOP_CONF_DIR") or (home and f"{home}/etc/hadoop") or ""
    told = dict[str, str]()
    for file in FILES if folder else ():
        try:
            found = ElementTree.parse(Path(folder, file)).getroot().iter("property")  # noqa: S314  # the cluster's own
        except (OSError, ElementTree.ParseError):
            continue
        told |= {(item.findtext("name") or "").strip(): item.findtext("value") or "" for item in found}
    return told


def _value(told: Mapping[str, str], key: str) -> str:
    """A setting with its variables, as Hadoop reads it; empty where it is not given."""
    value = told.get(key, "")
    for _ in range(_DEEPEST):
        if not (found := _VARIABLE.search(value)):
            break
        if found[1] not in told:
            raise OSError(
                f"{key} in Hadoop's settings is {told[key].strip()!r}, and {found[1]} is none of these settings. "
                "Java may know it, and Python's client does not: write the value itself"
            )
        value = value.replace(found[0], told[found[1]])
    return value.strip()


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with closing(socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS)):
            return True
    except (OSError, ValueError):
        return False
