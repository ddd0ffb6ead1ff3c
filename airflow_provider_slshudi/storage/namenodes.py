"""Which name nodes a name service of HDFS has, as `hdfs_native` takes them.

It connects to the first one without a time limit, so a machine that is switched off would keep each process for two
minutes before it asks the next; and of Hadoop's settings it takes names and addresses as they are written. Where these
are in a form that only it or Java reads, they are left to it.
"""

from __future__ import annotations

import logging
import os
import random
import re
import socket
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree

from airflow_provider_slshudi.system.secrets import hidden_in

_FILES = "core-site.xml", "hdfs-site.xml"
_log = logging.getLogger(__name__)
_CONNECT_SECONDS = 2.0
_ROUNDS = 6
"""About 40 seconds, nearly as a client of an object store asks. Its own 15 are four minutes."""
_VARIABLE = re.compile(r"\$\{([^}$\s]+)\}")
_ELSEWHERE = re.compile(r"<!ENTITY|<(?:\w+:)?include\b")
"""Parts of settings that are in other files."""


class _Unknown(Exception):
    """A variable is none of Hadoop's settings."""


def settings(service: str) -> dict[str, str]:
    """Settings of hdfs_native for a name service or a host and port: those nodes first that can be reached now.

    Raises:
        OSError: a name or an address has a character that is not seen; or no node has an address without variables
            that Hadoop's settings do not explain.
    """
    hadoop_settings = {} if ":" in service else _told()
    key = f"dfs.ha.namenodes.{service}"
    names = [_visible(key, name) for name in re.split(r"[,\s]+", hadoop_settings.get(key, "")) if name]
    nodes = _addresses(hadoop_settings, service, names)
    client_settings = {"dfs.client.failover.max.attempts": str(_ROUNDS * max(1, len(nodes)))}
    if nodes:
        order = list(nodes)
        draws = f"dfs.client.failover.random.order.{service}"
        if hadoop_settings.get(draws, "").strip().lower() == "true":
            random.shuffle(order)
        client_settings[draws] = "false"
        order.sort(key=lambda name: not _listens(nodes[name]))
        client_settings[key] = ",".join(order)
        client_settings |= {_key(service, name): address for name, address in nodes.items()}
    return client_settings


def _key(service: str, name: str) -> str:
    return f"dfs.namenode.rpc-address.{service}.{name}"


def _addresses(told: Mapping[str, str], service: str, names: list[str]) -> dict[str, str]:
    """The nodes of these names that have an address. Raises OSError: none has, for the want of a variable."""
    addresses, wrong = dict[str, str](), ""
    for name in names:
        key = _key(service, name)
        try:
            if address := _visible(key, _value(told, key)):
                addresses[name] = address
        except _Unknown as unknown:
            wrong = (
                f"{key} in Hadoop's settings is {told[key].strip()!r}, and Python's client does not know {unknown}, "
                "as Java may: write the value itself"
            )
            _log.warning("%s. Until then nothing works while this node is the active one", wrong)
    if wrong and not addresses:
        raise OSError(wrong)
    return addresses


def _visible(key: str, value: str) -> str:
    """The value. Raises OSError: it has a character that is not seen, and names no machine."""
    if hidden := hidden_in(value):
        raise OSError(f"{key} in Hadoop's settings: {hidden}. Write it once more")
    return value


def _told() -> dict[str, str]:
    """Hadoop's settings where the client looks for them; empty where it may read more, or less, than this does."""
    home = os.environ.get("HADOOP_HOME")
    folder = os.environ.get("HADOOP_CONF_DIR") or (home and f"{home}/etc/hadoop") or ""
    hadoop_settings, final = dict[str, str](), set[str]()
    for file in _FILES if folder else ():
        try:
            # As the client does, also where the file names another encoding.
            text = Path(folder, file).read_text(encoding="utf-8-sig")
            properties = ElementTree.fromstring(text).findall(".//{*}property")  # noqa: S314  # the cluster's own
        except FileNotFoundError:
            continue
        except (OSError, ValueError, ElementTree.ParseError):
            return {}
        if _ELSEWHERE.search(text):
            return {}
        for item in properties:
            key, value = (item.findtext("{*}name") or "").strip(), item.findtext("{*}value")
            if value and key not in final:
                hadoop_settings[key] = value
                if (item.findtext("{*}final") or "").strip() == "true":
                    final.add(key)
    return hadoop_settings


def _value(told: Mapping[str, str], key: str) -> str:
    """A setting with its variables, as Hadoop reads it; empty where it is not given. Raises _Unknown."""
    value, variables = told.get(key, ""), set[str]()
    while reference := _VARIABLE.search(value):
        if reference[1] in variables or reference[1] not in told:
            raise _Unknown(reference[0])
        variables.add(reference[1])
        value = value.replace(reference[0], told[reference[1]])
    return value.strip()


def _listens(address: str) -> bool:
    """Whether a server takes connections at the first of an address's places, which is where the client tries."""
    host, _, port = address.rpartition(":")
    try:
        family, kind, _, _, place = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
        with closing(socket.socket(family, kind)) as connection:
            connection.settimeout(_CONNECT_SECONDS)
            connection.connect(place)
            return True
    except (OSError, ValueError, OverflowError):
        return False
