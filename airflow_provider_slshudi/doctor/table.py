"""A table's place on its storage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from airflow_provider_slshudi.doctor.finding import Check, Seen, ok, unknown, wrong
from airflow_provider_slshudi.exceptions import PipelineConflict, SlsHudiError
from airflow_provider_slshudi.handover import ROOT
from airflow_provider_slshudi.hudi.layout import PROPERTIES
from airflow_provider_slshudi.storage import owners
from airflow_provider_slshudi.storage.files import Storage

_CONTENT = b"slshudi doctor\n"


class Place:
    """The checks of a table's place.

    Args:
        uri: the table's path.
        written: tells whether the ledger knows that the pipeline wrote the table; raises PipelineConflict if it knows
            another table of the pipeline, LookupError or another SlsHudiError if that is not known.
    """

    def __init__(self, uri: str, written: Callable[[], bool]) -> None:
        self._storage, self._written = Storage(uri), written

    def checks(self, name: str) -> list[Check]:
        """All checks; `name` says which of a pipeline's tables it is."""
        return [Check(name, self.table), Check(f"{name}'s files", self.files), Check(f"{name}'s owner", self.owner)]

    def table(self) -> Seen:
        """Whether the table is there, as the ledger knows it."""
        uri = self._storage.uri
        is_there = self._storage.exists(PROPERTIES)
        try:
            written = self._written()
        except PipelineConflict as error:
            return wrong(f"{uri}: {error}")
        except (LookupError, SlsHudiError) as error:
            if is_there:
                return ok(uri)
            return unknown(f"{uri}: there is no table here, and whether there should be one is not known ({error})")
        if is_there:
            return ok(uri)
        if written:
            return wrong(
                f"{uri}: there is no table here ({PROPERTIES} is missing), but the ledger knows that there was one",
                "see whether it is mounted, and whether this machine's settings lead to the right store",
            )
        return ok(f"{uri}: there is no table yet; the first batch makes it")

    def files(self) -> Seen:
        """A file written, read and deleted."""
        storage, name = self._somewhere()
        storage.write(name, _CONTENT)
        try:
            content = storage.read(name)
        finally:
            storage.delete(name)
        place = f"{storage.uri}/{name}"
        if content != _CONTENT:
            return wrong(f"{place} was written with {len(_CONTENT)} bytes, and read with {len(content or b'')}")
        if storage.exists(name):
            return wrong(f"{place} was deleted, and is still there")
        return ok(f"a file was written, read and deleted below {storage.uri}")

    def owner(self) -> Seen:
        """Whether the table's owner could change what this user writes there."""
        base = self._storage.full("")
        if not self._storage.is_local:
            return ok("owners matter on a disk of this machine alone")
        self._storage.require_owner()
        if not Path(base).exists():
            return ok(f"{owners.this_user()} will own it")
        return ok(f"it is {owners.name_of(Path(base).stat().st_uid)}'s; this process runs as {owners.this_user()}")

    def _somewhere(self) -> tuple[Storage, str]:
        """Where a file is no part of the table, and leaves no folder behind."""
        name = f".slshudi-doctor-{uuid4().hex}"
        if self._storage.exists(PROPERTIES):
            return self._storage, f"{ROOT}/{name}"
        return (self._storage.nearest() if self._storage.renames else self._storage), name
