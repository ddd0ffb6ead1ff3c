"""Keys, tokens and passwords of connections, in a type that no message, log or page can show."""

from __future__ import annotations

from typing import NoReturn


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
