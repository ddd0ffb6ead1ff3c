"""Guards of completeness, each left out, to see that drawn histories find it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any

import pytest
from sqlalchemy import Connection

from airflow_provider_slshudi.ledger import partition_rows, reads
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import GONE
from airflow_provider_slshudi.planning.watermark import Mark, ShardState, kept, watermark
from airflow_provider_slshudi.sls import service
from airflow_provider_slshudi.transaction import backlog
from airflow_provider_slshudi.transaction.context import Work

Plant = Callable[[pytest.MonkeyPatch], None]
_shards, _commit, _look = partition_rows._shards, partition_rows._commit, backlog.look


def idle_shards(patch: pytest.MonkeyPatch) -> None:
    """Shards of which nothing is read count for nothing."""

    def of_read(shards: Iterable[ShardState], looked: int | None) -> int | None:
        return watermark([shard for shard in shards if shard.covered], looked)

    patch.setattr(partition_rows, "watermark", of_read)


def ledgers_clock(patch: pytest.MonkeyPatch) -> None:
    """The ledger's clock is taken for the service's."""

    def look(work: Work, shards: Any, before: Any, at: Any, listed: int | None) -> int | None:
        return _look(work, shards, before, at, int(work.ledger.now().timestamp()))

    patch.setattr(backlog, "look", look)


def before_folding(patch: pytest.MonkeyPatch) -> None:
    """Partitions are completed while commits are not folded yet."""

    calls = count()

    def later(*args: Any) -> tuple[int, bool]:
        *_, folded, _ = args
        return (folded, False) if next(calls) % 2 else _commit(*args)

    patch.setattr(partition_rows, "_commit", later)


def new_shards(patch: pytest.MonkeyPatch) -> None:
    """Shards that splits and merges made are forgotten."""
    first: dict[int, ShardState] = {}

    def of_first(connection: Connection, pipeline: str) -> dict[int, ShardState]:
        there = _shards(connection, pipeline)
        first.update(there if not first else {})
        return {id_: state for id_, state in there.items() if id_ in first}

    patch.setattr(partition_rows, "_shards", of_first)


def no_margin(patch: pytest.MonkeyPatch) -> None:
    """All of the service's machines are thought to have one clock."""
    patch.setattr(backlog, "SERVICE_CLOCKS_SECONDS", 0)


def slow_lists(patch: pytest.MonkeyPatch) -> None:
    """A list of shards is thought to be as new as its answer."""

    class Standing:
        def monotonic(self) -> float:
            return 0.0

    patch.setattr(service, "time", Standing())


def expired_logs(patch: pytest.MonkeyPatch) -> None:
    """The time that is told of a cursor is thought to be of its own log."""
    patch.setattr(backlog, "_still_held", lambda _, unread: dict(unread))


def gone_shards(patch: pytest.MonkeyPatch) -> None:
    """Shards that are gone count for nothing before what they lost is committed as a gap."""

    def of_present(connection: Connection, pipeline: str) -> dict[int, ShardState]:
        gone = {shard.id for shard in reads.shards(connection, pipeline) if shard.status == GONE}
        return {id_: state for id_, state in _shards(connection, pipeline).items() if id_ not in gone}

    patch.setattr(partition_rows, "_shards", of_present)


def doubtful_shards(patch: pytest.MonkeyPatch) -> None:
    """Shards that may have lost logs before they were seen count as others do."""

    def of_all(shards: Iterable[ShardState], looked: int | None) -> int | None:
        return watermark([shard._replace(is_doubtful=False) for shard in shards], looked)

    patch.setattr(partition_rows, "watermark", of_all)


def untold_losses(patch: pytest.MonkeyPatch) -> None:
    """Losses of which no cursors are known are not told."""
    patch.setattr(Ledger, "lose", lambda *_: None)


def duty_from_the_start(patch: pytest.MonkeyPatch) -> None:
    """What came before the pipeline's duty began is thought to be read."""
    patch.setattr(Ledger, "began", lambda *_: 0)


def forgotten_ends(patch: pytest.MonkeyPatch) -> None:
    """Only the age of unread logs is kept of a look, not where shards ended."""

    def fewer(shard: ShardState, new: Iterable[Mark]) -> list[Mark]:
        return kept(shard, [*new][1:])

    patch.setattr(partition_rows, "kept", fewer)


PLANTED: Mapping[str, Plant] = {
    plant.__name__.replace("_", "-"): plant
    for plant in (
        idle_shards,
        ledgers_clock,
        before_folding,
        new_shards,
        no_margin,
        slow_lists,
        expired_logs,
        gone_shards,
        doubtful_shards,
        untold_losses,
        duty_from_the_start,
        forgotten_ends,
    )
}
