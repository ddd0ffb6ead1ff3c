"""What a driver in cluster mode and the task that wants its work say to one another: one JSON line each."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

FILE = "slshudi-driver.json"
"""The file in the driver's own folder that says where the task is asked. It holds a token."""
BEAT_SECONDS = 2.0
"""How often a driver reports."""
LOST_SECONDS = 60.0
"""A driver that does not reach its task for so long ends itself; one that is not heard of for so long is lost."""
GONE_SECONDS = 10.0
"""A driver that hears for so long that its task does not listen any more, or that another process does, ends itself."""
LONGEST = 256 << 10
"""Bytes of the longest report."""


@dataclass(frozen=True)
class Report:
    """What a driver says.

    Attributes:
        driver: a name that it gave itself, and that no other has.
        host: where it runs.
        first: how many lines it has sent before these.
        lines: what it has printed since.
        done: whether its work is done.
        last: whether this is its last report.
        wants: whether it asks for its order.
    """

    driver: str
    host: str
    first: int = 0
    lines: list[str] = field(default_factory=list)
    done: bool = False
    last: bool = False
    wants: bool = False

    def to_json(self) -> str:
        """As text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Report:
        """The report that `to_json` wrote. Raises ValueError: it is none."""
        report = _known(cls, text)
        lines = report.get("lines", [])
        if not {"driver", "host"} <= report.keys() or not isinstance(report.get("first", 0), int):
            raise ValueError("it is no report")
        if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
            raise ValueError("its lines are no text")
        return cls(**report)


@dataclass(frozen=True)
class Reply:
    """What it is told.

    Attributes:
        order: what it works on, JSON of a JobOrder, where it asked for it.
        keys: where its tasks are told the log service's credentials, JSON of a Place; empty where they need none.
        end: why it has to end at once; empty where it goes on.
    """

    order: str = ""
    keys: str = field(default="", repr=False)
    end: str = ""

    def to_json(self) -> str:
        """As text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Reply:
        """The reply that `to_json` wrote."""
        return cls(**_known(cls, text))


def _known(kind: type, text: str) -> dict[str, Any]:
    """What a message says, but for what another version says besides. Raises ValueError: it is no message."""
    try:
        message = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is too deep") from error
    if not isinstance(message, dict):
        raise ValueError(f"{text[:100]!r} is no message")
    return {item.name: message[item.name] for item in fields(kind) if item.name in message}
