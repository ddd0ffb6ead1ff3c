"""Keys of logs that no column names, as the tasks of a batch saw them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

MOST = 200
"""The most keys that a task, and a batch, tells of: those that most logs have."""
EXAMPLES = 3
"""The most values of a key."""


@dataclass(frozen=True)
class Unnamed:
    """What some of a batch's logs have beside the keys that columns name.

    Attributes:
        looked: how many logs were looked at; not all of them are.
        logs: by key, how many of these logs have it.
        examples: by key, the first few values, as text.
    """

    looked: int = 0
    logs: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def total(cls, parts: Iterable[Unnamed]) -> Unnamed:
        """All parts together."""
        looked, logs, examples = 0, Counter[str](), dict[str, list[str]]()
        for part in parts:
            looked += part.looked
            logs.update(part.logs)
            for key, values in part.examples.items():
                examples[key] = list(dict.fromkeys([*examples.get(key, []), *values]))[:EXAMPLES]
        kept = dict(logs.most_common(MOST))
        return cls(looked, kept, {key: examples[key] for key in kept if key in examples})
