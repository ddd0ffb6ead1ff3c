"""What a verification finds, in figures."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class RangeFound:
    """The rows of one recorded range.

    Attributes:
        number: the range's place in the question.
        rows: all rows whose key lies in the range.
        distinct: distinct row keys.
        own: distinct row keys of which a row was written under the range's instant, or by a replay.
        quarantined: rows of them that are in the quarantine.
        example: the key of a row that is there twice or was written under another instant.
        groups: log groups that the service still holds; it was asked for those alone.
        logs: logs in these log groups.
        lacking: logs in them that have no row.
        strange: distinct row keys in them whose log group has no log of that index.
        lacking_at, strange_at: the first cursor where that is so.
    """

    number: int
    rows: int
    distinct: int
    own: int
    quarantined: int
    example: str | None
    groups: int
    logs: int
    lacking: int
    strange: int
    lacking_at: int | None
    strange_at: int | None


@dataclass(frozen=True, slots=True)
class Outside:
    """Rows whose key lies in no recorded range, and one such key; of no shard where the key names none."""

    shard: int | None
    rows: int
    example: str | None


@dataclass(frozen=True, slots=True)
class Findings:
    """All of it; a range without rows and log groups is left out."""

    ranges: list[RangeFound]
    outside: list[Outside]

    def to_json(self) -> bytes:
        """For a file."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, content: bytes) -> Findings:
        """What `to_json` wrote."""
        data = json.loads(content)
        return cls([RangeFound(**item) for item in data["ranges"]], [Outside(**item) for item in data["outside"]])
