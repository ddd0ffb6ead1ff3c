"""Spark's master."""

from __future__ import annotations

import re
import socket
from contextlib import closing

from airflow_provider_slshudi.doctor.finding import Seen, ok, unknown, warning, wrong

_SECONDS = 2.0
_ADDRESS = re.compile(r"(?P<host>[^,:/\s]+):(?P<port>\d{1,5})")


def answers(master: str) -> Seen:
    """Whether the master can be connected to; it is told nothing."""
    kind, _, rest = master.partition("://")
    if kind.startswith("local"):
        return ok(f"{master}: drivers and tasks run on the machine of Airflow's task")
    if kind not in ("spark", "k8s"):
        return unknown(f"{master}: its address is not in the connection, so no master was asked")
    places = [(found["host"], int(found["port"])) for found in _ADDRESS.finditer(rest)]
    if not places:
        return wrong(f"{master} names no host and port", "write spark://host, and the port in its own field")
    silent = {f"{host}:{port}": reason for host, port in places if (reason := _refused(host, port))}
    told = ", ".join(f"{place} ({reason})" for place, reason in silent.items())
    mend = "see whether it runs, and whether this machine may reach it"
    if len(silent) == len(places):
        return wrong(f"{master} does not answer: {told}", mend)
    if silent:
        return warning(f"{master} answers, but not at {told}", mend)
    return ok(f"{master} takes connections")


def _refused(host: str, port: int) -> str:
    """Why no address could be connected to; empty where one could."""
    try:
        with closing(socket.create_connection((host, port), timeout=_SECONDS)):
            return ""
    except (OSError, OverflowError, UnicodeError) as error:
        return str(error)
