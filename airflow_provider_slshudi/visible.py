"""Looks for characters that a person who types a key, a token or a name does not see.

A line break behind a token is no part of it, and no header takes it: http.client's error then quotes the header.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable

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
