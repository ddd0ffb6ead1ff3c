"""Printed text, line by line."""

from __future__ import annotations

import io
from abc import abstractmethod


class Printed(io.TextIOBase):
    """A standard output that takes whole lines."""

    _begun = ""

    @abstractmethod
    def take(self, line: str) -> None:
        """Takes a line, without its end."""

    def write(self, text: str) -> int:
        """Takes the lines that end in the text, the first with what was written of it before."""
        *whole, self._begun = (self._begun + text).split("\n")
        for line in whole:
            self.take(line)
        return len(text)
