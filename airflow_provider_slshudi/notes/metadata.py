"""How metadata tables differ from the files on storage, left by the driver that compared them."""

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
    """How the metadata table differs from the files on storage: how many of each kind, and a few paths as examples.

    Attributes:
        files: files of completed instants on storage.
        lacking: how many of these the metadata table lacks: no reader sees their rows.
        gone: files that it lists and storage lacks: queries fail.
        differing: files that it lists with a wrong length.
        leftovers: files of rolled-back instants: they hold no rows of the table and should be deleted.
        unknown: files of instants from before the timeline's begin that were neither archived nor rolled back.
        ahead: the newest time on its timeline, as Hudi writes times, if no run may write until then; else empty.
        unreadable: why the metadata table cannot be read; empty also where there is none, which is no damage.
    """

    files: int
    lacking: int = 0
    gone: int = 0
    differing: int = 0
    examples: tuple[str, ...] = ()
    unreadable: str = ""
    leftovers: int = 0
    unknown: int = 0
    ahead: str = ""

    @property
    def ok(self) -> bool:
        """Whether readers with it and readers without it see the same files, and writers go on."""
        counted = self.lacking or self.gone or self.differing or self.leftovers or self.unknown
        return not (counted or self.unreadable or self.ahead)

    def with_quarantine(self, other: Comparison) -> Comparison:
        """Adds what was found of the quarantine's metadata table; its examples say so."""
        numbers = {name: getattr(self, name) + getattr(other, name) for name in COUNTS}
        of_it = tuple(f"quarantine: {example}" for example in other.examples)
        why = [self.unreadable, f"quarantine: {other.unreadable}" if other.unreadable else ""]
        return Comparison(
            **numbers,
            examples=(*self.examples, *of_it)[:EXAMPLES],
            unreadable="; ".join(filter(None, why)),
            ahead=max(self.ahead, other.ahead),
        )


def leave_comparison(storage: Storage, id_: str, found: Comparison) -> None:
    """Leaves what a comparison found."""
    storage.write(_path(id_), json.dumps(asdict(found)).encode())


def take_comparison(storage: Storage, id_: str) -> Comparison | None:
    """What a comparison found, None where it left nothing."""
    found = storage.read_json(_path(id_))
    if found is None:
        return None
    storage.delete(_path(id_))
    return Comparison(**{**found, "examples": tuple(found["examples"])})


def _path(id_: str) -> str:
    return f"{ROOT}/metadata/{id_}.json"
