"""What a matrix of cases says of each, and at its end."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

AnyCase = TypeVar("AnyCase")


@dataclass
class Outcome(Generic[AnyCase]):
    """How the cases of a matrix ended."""

    name: str
    cases: int = 0
    failed: list[tuple[AnyCase, str]] = field(default_factory=list)

    def run(self, case: AnyCase, carry_out: Callable[[AnyCase], str]) -> None:
        """Carries a case out and says so in one line."""
        began = time.monotonic()
        self.cases += 1
        try:
            said = f"ok      {case}: {carry_out(case)}"
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            self.failed.append((case, f"{type(error).__name__}: {error}"))
            said = f"FAILED  {case}: {type(error).__name__}: {str(error)[:500]}"
        print(f"{self.cases:4} {time.monotonic() - began:6.1f} s  {said}", flush=True)

    def tell(self) -> None:
        """Names what failed."""
        for case, why in self.failed:
            print(f"failed: {case}: {why}")

    def __str__(self) -> str:
        lost = sum("lost" in why for _, why in self.failed)
        doubled = sum("doubled" in why or "more than once" in why for _, why in self.failed)
        other = f", {len(self.failed)} failed" if self.failed else ""
        return f"{self.name}: {self.cases} cases, {lost} lost, {doubled} doubled{other}"
