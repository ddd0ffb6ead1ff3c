"""Which shards wait, so that all logs of a key are read in the order in which they were put.

A split closes a shard and makes two that share its range of hash keys, a merge makes one of two. A key's logs are in
the closed shard first and in the new one later, so the new one is read once the closed one is.
https://www.alibabacloud.com/help/en/sls/product-overview/shard
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_BEFORE_ALL, _AFTER_ALL = "", "g"
"""What is below and above every hash key, which is a text of hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The half-open range of hash keys that a shard has; both ends are empty where it is not known any more.

    `finished` says that the shard is closed and that all of it is covered, `is_open` that it takes logs.
    """

    shard: int
    begin: str
    end: str
    finished: bool
    is_open: bool = False

    @property
    def first(self) -> str:
        """The lowest key that it may have."""
        return self.begin.lower() or _BEFORE_ALL

    @property
    def last(self) -> str:
        """Above the highest key that it may have."""
        return self.end.lower() or _AFTER_ALL

    def waits_for(self, older: Keys) -> bool:
        """Whether it waits for an older shard that may share keys with it.

        What takes logs may never be finished, and no key was ever in it and in a newer shard. So one whose own keys
        are forgotten does not wait for it.
        """
        return not older.finished and not (older.is_open and not self.begin and not self.end)


def waiting(shards: Iterable[Keys]) -> frozenset[int]:
    """The shards that share keys with an older one which is not finished.

    The service numbers shards in the order in which it makes them. One walk over all shards, sorted by their keys.
    """
    held: set[int] = set()
    active: list[Keys] = []
    for shard in sorted(shards, key=lambda item: (item.first, item.last, item.shard)):
        active = [other for other in active if other.last > shard.first]
        for other in active:
            older, newer = sorted((other, shard), key=lambda item: item.shard)
            if newer.waits_for(older):
                held.add(newer.shard)
        active.append(shard)
    return frozenset(held)
