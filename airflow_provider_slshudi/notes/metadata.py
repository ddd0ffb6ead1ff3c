"""How metadata tables differ from what is on storage, left by the driver that compared them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from airflow_provider_slshudi.notes import ROOT
from airflow_provider_slshudi.storage import Storage

EXAMPLES = 5


COUNTS = ("files", "lacking", "gone", "differing", "leftovers", "unknown")
"""The numbers of a `Comparison`."""


@dataclass(frozen=True)
class Comparison:
    """How the metadata table differs from what is on storage; of each kind a number, and of all a few paths.

    Attributes:
        files: that completed instants left on storage.
        lacking: of these, those that the metadata table lacks: their rows are not read.
        gone: that it lists and that are not there: queries fail.
        differing: whose length it has wrong.
        leftovers: files of instants that were rolled back: no rows of the table, and to be deleted.
        unknown: files older than the timeline's begin whose instant is neither in the archive nor was rolled back.
        unreadable: why it cannot be read at all; it is empty where there is none, which is no damage.
    """

    files: int
    lacking: int = 0
    gone: int = 0
    differing: int = 0
    examples: tuple[str, ...] = ()
    unreadable: str = ""
    leftovers: int = 0
    unknown: int = 0

    @property
    def ok(self) -> bool:
        """Whether readers with it and readers without it see the same files."""
        return not (self.lacking or self.gone or self.differing or self.unreadable or self.leftovers or self.unknown)

    def with_quarantine(self, other: Comparison) -> Comparison:
        """The same with what was found of the quarantine's metadata table; its examples say so."""
        numbers = {name: getattr(self, name) + getattr(other, name) for name in COUNTS}
        of_it = tuple(f"quarantine: {example}" for example in other.examples)
        why = [self.unreadable, f"quarantine: {other.unreadable}" if other.unreadable else ""]
        return Comparison(
            **numbers, examples=(*self.examples, *of_it)[:EXAMPLES], unreadable="; ".join(filter(None, why))
        )


def leave_comparison(storage: Storage, id_: str, found: Comparison) -> None:
    """Leaves what a comparison found."""
    storage.write(_path(id_), json.dumps(asdict(found)).encode())


def take_comparison(storage: Storage, id_: str) -> Comparison | None:
    """What a comparison found, None where it left nothing."""
    content = storage.read(_path(id_))
    if content is None:
        return None
    storage.delete(_path(id_))
    found = json.loads(content)
    return Comparison(**{**found, "examples": tuple(found["examples"])})


def _path(id_: str) -> str:
    return f"{ROOT}/metadata/{id_}.json"
