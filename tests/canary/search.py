"""Looks for secrets in whatever somebody could read: bytes, files, rows, as they are or in the usual disguises."""

from __future__ import annotations

import base64
import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Engine, MetaData, select


@dataclass
class Search:
    """What was searched for the secrets, by name, and where one was found.

    Attributes:
        places: how many files, rows, pages, process lists there were.
    """

    secrets: Mapping[str, str]
    places: int = 0
    bytes_: int = 0
    found: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._disguises = [
            (name, disguise) for name, secret in self.secrets.items() for disguise in disguises(secret.encode())
        ]

    def look(self, where: str, content: bytes) -> None:
        """Looks into one place."""
        self.places += 1
        self.bytes_ += len(content)
        for part in (content, *_unpacked(content)):
            for name in {name for name, disguise in self._disguises if disguise in part}:
                self.found.append(f"{name} in {where}")

    def files(self, root: Path, but: Iterable[Path] = ()) -> None:
        """Looks into all files below a folder, and at their names, but for those that are named."""
        left_out = set(but)
        for path in sorted(root.rglob("*")):
            if path in left_out or path.is_symlink() or not path.is_file():
                continue
            try:
                self.look(str(path), path.read_bytes() + str(path).encode())
            except OSError:
                # It is gone, as temporary files are.
                continue

    def rows(self, name: str, engine: Engine) -> None:
        """Looks into all rows of all tables of a database."""
        tables = MetaData()
        tables.reflect(engine)
        with engine.connect() as connection:
            for table in tables.sorted_tables:
                for row in connection.execute(select(table)):
                    self.look(f"{name}, table {table.name}", repr(tuple(row)).encode())


def disguises(secret: bytes) -> Iterator[bytes]:
    """A secret as it stands, and as programs write it: base64 wherever it begins, hexadecimal, quoted, UTF-16."""
    yield secret
    for before in range(3):
        # The letters that depend on the secret alone, whatever stands around it.
        packed = base64.b64encode(bytes(before) + secret)
        first = -(-before * 8 // 6)
        last = (before + len(secret)) * 8 // 6
        yield packed[first:last]
        yield packed[first:last].translate(bytes.maketrans(b"+/", b"-_"))
    yield secret.hex().encode()
    yield secret.hex().upper().encode()
    yield quote(secret, safe="").encode()
    yield secret.decode().encode("utf-16-le")
    yield secret[::-1]


def _unpacked(content: bytes) -> Iterator[bytes]:
    if content[:2] == b"\x1f\x8b":
        try:
            yield gzip.decompress(content)
        except (OSError, EOFError, zlib.error):
            return
