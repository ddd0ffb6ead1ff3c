"""Processes in other zones, and tables of before, whose times were those of whoever wrote them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.hudi.client import clock
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.spark.launch import Launcher
from airflow_provider_slshudi.storage.files import Storage

PROPERTIES = ".hoodie/hoodie.properties"


@contextmanager
def in_zone(gateway: Gateway, zone: str) -> Iterator[None]:
    """A JVM whose zone is another, as the environment of a machine makes it; as a process of its own."""
    zones = gateway.jvm.java.util.TimeZone
    before = zones.getDefault()
    zones.setDefault(zones.getTimeZone(zone))
    try:
        yield
    finally:
        zones.setDefault(before)
        # No other process knows which time it made last.
        clock._last(gateway).set("0")


@dataclass(frozen=True)
class InZone:
    """Runs jobs as another launcher does, on a machine in another zone."""

    launcher: Launcher
    gateway: Gateway
    zone: str

    def run(self, verb: Verb, order: JobOrder, secrets: Mapping[str, str]) -> None:
        with in_zone(self.gateway, self.zone):
            self.launcher.run(verb, order, secrets)


def without_zone(storage: Storage) -> None:
    """Makes a table one that says nothing of zones, as Hudi makes them."""
    lines = (storage.read(PROPERTIES) or b"").splitlines(keepends=True)
    storage.delete(".hoodie/.hoodie.properties.crc")
    storage.write(PROPERTIES, b"".join(line for line in lines if b"timeline.timezone" not in line))
