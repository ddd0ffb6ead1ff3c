"""Keys, tokens and passwords in a type that no message, log or page shows; and characters that a person does not see.

A line break behind a token is no part of it, and no header takes it: http.client's error then quotes the header.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable
from typing import NoReturn

_HIDDEN = ("Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn")
"""Unicode's categories of what shows nothing: controls, formats, separators of lines, and what is no character."""


def hidden_in(text: str, only_ascii: bool = False) -> str:
    """Where the first character is that is not seen, in words that do not quote the text; empty where there is none.

    Args:
        text: what was typed.
        only_ascii: whether spaces and all beyond ASCII count, too, since a header carries the text.
    """
    for number, character in enumerate(text, 1):
        if _is_hidden(character) or (only_ascii and not "!" <= character <= "~"):
            return f"character {number} of {len(text)} is U+{ord(character):04X} ({_name(character)})"
    return ""


def hidden_in_variables(names: Iterable[str], only_ascii: bool = False) -> str:
    """The first of this process's variables with a character that is not seen, and where, without its value; or empty.

    Args:
        names: the variables.
        only_ascii: as `hidden_in`.
    """
    for name in names:
        if hidden := hidden_in(os.environ.get(name, ""), only_ascii):
            return f"environment variable {name}: {hidden}. Its value is not shown; set it once more"
    return ""


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in _HIDDEN


def _name(character: str) -> str:
    return {"\n": "a line break", "\r": "a carriage return", "\t": "a tab"}.get(
        character, unicodedata.name(character, "no printable character").lower()
    )


class Secret:
    """A text that only `reveal` gives; as text, wherever it is put into one, it is `***`.

    It is no `str`, so functions that join, encode or serialize texts refuse it; so does pickle, which would show it.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for a signature, a header or a process's environment."""
        return self._text

    def __repr__(self) -> str:
        return "***"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret does not travel by pickle")

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


NONE = Secret("")


class Variables(dict[str, str]):
    """Environment variables with secrets among them, for a process that starts; as text, their names alone."""

    def __repr__(self) -> str:
        return f"Variables({', '.join(self)})"
