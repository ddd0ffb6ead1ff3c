"""The logstores that a pipeline reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, model_validator

from airflow_provider_slshudi.config.values import Model, Size

SHARD_BYTES_PER_SECOND = 10_000_000
SHARD_READS_PER_SECOND = 100.0
"""The rates that a shard serves: https://www.alibabacloud.com/help/en/sls/product-overview/shard. We count raw bytes,
since the page does not say whether the service counts compressed ones."""
Place = tuple[str, str, int]
"""A logstore: its project, its name, and which of the source's connections leads to it."""
_CONNECTION = "sls_default"
_MOST_FURTHER = 99
"""The most logstores beside the first: their shards' numbers stay far below the greatest integer of 32 bits."""


STRIDE = 1_000_000
"""The first logstore's shards have their own ids as numbers; to those of the next one this is added, and so on."""
T = TypeVar("T")


def place_of(shard: int) -> int:
    """The place, in the pipeline's file, of the logstore that a shard's number names; the first one's is 0."""
    return shard // STRIDE


def by_place(shards: Iterable[T], number: Callable[[T], int]) -> dict[int, list[T]]:
    """Shards by the place of their logstore.

    Args:
        shards: numbers of shards, or what has one.
        number: gives it.
    """
    by: dict[int, list[T]] = {}
    for shard in shards:
        by.setdefault(place_of(number(shard)), []).append(shard)
    return by


def own_name(identity: str, shard: int) -> str:
    """A shard's logstore and its id there, for a person; empty where the source has one logstore.

    Args:
        identity: `Source.identity`.
        shard: its number.
    """
    uris, place = identity.split(" "), place_of(shard)
    if len(uris) == 1 or place >= len(uris):
        return ""
    return f"{uris[place].removeprefix('sls://')} {shard % STRIDE}"


def full_name(identity: str, shard: int) -> str:
    """A shard's number, and `own_name` behind it if it has one."""
    own = own_name(identity, shard)
    return f"{shard} ({own})" if own else str(shard)


class Logstore(Model):
    """A logstore, and the Airflow connection that leads to it."""

    connection: str = _CONNECTION
    project: str = Field(min_length=1)
    logstore: str = Field(min_length=1)

    @property
    def uri(self) -> str:
        """The logstore's name in the ledger."""
        return f"sls://{self.project}/{self.logstore}"


class Source(Logstore):
    """The logstore to read, and how; `also` are further ones, which go into the same table in the same transactions.

    Each of `also` has a connection of its own, or this one's, so it may be in another region or of another account.
    All that is said here of shards and of `start` is for each logstore alike.

    With `order: by_key` batches commit all logs of a hash key in the order in which they were put: one batch follows
    the other, and a shard that a split or a merge made is read once those before it are. Upserts always do so.

    `start` says where to begin in a shard that exists when the pipeline first runs: at its first retained log
    (`begin`), at its end (`end`), or at a receive time in unix seconds. A shard that appears later is always read from
    its first log.

    All tasks of a batch together read each shard at most at `read_bytes_per_second` (raw) and `reads_per_second`, and
    all shards at most at `total_bytes_per_second`. A backfill takes at most `backfill_share` of each of these.
    """

    also: list[Logstore] = Field(default_factory=list, max_length=_MOST_FURTHER)
    start: Literal["begin", "end"] | Annotated[int, Field(gt=0)] = "begin"
    on_expired: Literal["fail", "skip"] = "fail"
    order: Literal["any", "by_key"] = "any"
    read_bytes_per_second: Size = SHARD_BYTES_PER_SECOND
    reads_per_second: float = Field(SHARD_READS_PER_SECOND, gt=0, allow_inf_nan=False)
    total_bytes_per_second: Size | None = None
    backfill_share: float = Field(1.0, gt=0, le=1, allow_inf_nan=False)

    @property
    def of_backfill(self) -> Source:
        """The same with a backfill's limits."""
        share, total = self.backfill_share, self.total_bytes_per_second
        limits = {
            "read_bytes_per_second": math.ceil(self.read_bytes_per_second * share),
            "reads_per_second": self.reads_per_second * share,
            "total_bytes_per_second": None if total is None else math.ceil(total * share),
        }
        return self.model_copy(update=limits)

    @model_validator(mode="before")
    @classmethod
    def _by_the_same_connection(cls, fields: Any) -> Any:
        """Gives those of `also` that name no connection the source's own."""
        if not isinstance(fields, dict) or not isinstance(fields.get("also"), list):
            return fields
        own = {"connection": fields.get("connection", _CONNECTION)}
        return {**fields, "also": [own | item if isinstance(item, dict) else item for item in fields["also"]]}

    @model_validator(mode="after")
    def _each_once(self) -> Source:
        places: dict[tuple[str, str, str], int] = {}
        for number, item in enumerate(self.logstores):
            place = item.connection, item.project, item.logstore
            if place in places:
                raise ValueError(
                    f"{item.uri} by connection {item.connection} is named twice: its logs would be in the table twice"
                )
            places[place] = number
        return self

    @property
    def logstores(self) -> list[Logstore]:
        """All logstores; the place of each says which numbers its shards have (`sls.logstores`)."""
        return [self, *self.also]

    @property
    def connections(self) -> list[str]:
        """The Airflow connections that lead to the logstores, each once."""
        return list(dict.fromkeys(item.connection for item in self.logstores))

    @property
    def places(self) -> tuple[Place, ...]:
        """The logstores as plain data, for tasks: project, logstore, and the number of the connection."""
        numbers = {connection: number for number, connection in enumerate(self.connections)}
        return tuple((item.project, item.logstore, numbers[item.connection]) for item in self.logstores)

    def by_connection(self, connection: str) -> Source:
        """The same by another connection; those of `also` too that have the source's."""
        also = [
            item.model_copy(update={"connection": connection}) if item.connection == self.connection else item
            for item in self.also
        ]
        return self.model_copy(update={"connection": connection, "also": also})

    @property
    def identity(self) -> str:
        """The source's name in the ledger: the names of its logstores."""
        return " ".join(item.uri for item in self.logstores)


def is_same_or_more(known: str, wanted: str) -> bool:
    """Whether the source with identity `wanted` is the `known` one, or the same with further logstores at the end.

    Then each shard has the number that it had.
    """
    return f"{wanted} ".startswith(f"{known} ")
