"""A scenario, and the list of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.browser.errors.stage import Stage

Play = Callable[[Stage], str]


@dataclass(frozen=True)
class Scenario:
    """How a row of the table is made, and put right.

    Attributes:
        error: the row, or the one of its errors that is meant.
        play: makes and mends it; returns in a few words what did.
        made: arguments of `Stage.make`.
        alone: whether it breaks what all pipelines share.
    """

    error: str
    play: Play
    made: Mapping[str, Any] = field(default_factory=dict)
    alone: bool = False


class Scenarios(dict[str, Scenario]):
    """Scenarios by their errors."""

    def of(self, error: str, alone: bool = False, **made: Any) -> Callable[[Play], Play]:
        """Adds one; `made` are arguments of `Stage.make`."""

        def add(play: Play) -> Play:
            assert error not in self, error
            self[error] = Scenario(error, play, made, alone)
            return play

        return add
