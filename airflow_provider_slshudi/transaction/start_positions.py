"""Keeps in the table where a pipeline's duty for each shard begins, since no commit says what was still unread.

Without this a rebuilt ledger would begin a shard at its first commit, or anew. Each pipeline has a file of its own,
which names the source: shards of another logstore have nothing in common with these, but a
source may get further ones.
"""

from __future__ import annotations

import json

from airflow_provider_slshudi.config.sources import is_same_or_more
from airflow_provider_slshudi.exceptions import TableError
from airflow_provider_slshudi.handover import findings
from airflow_provider_slshudi.ledger.records import GONE, LATE, StartPositions
from airflow_provider_slshudi.transaction.context import Work


def read(work: Work) -> StartPositions:
    """The duties that the table keeps for the pipeline's source; empty where it keeps none.

    Raises:
        TableError: the file is damaged.
    """
    content = findings.read_start_positions(work.storage, work.pipeline.name)
    if content is None:
        return StartPositions()
    try:
        positions = json.loads(content)
        first = {int(shard): int(begin) for shard, begin in positions["first"].items()}
        ends = {int(shard): None if end is None else int(end) for shard, end in positions["gone"].items()}
        source = str(positions["source"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        file = work.storage.full(findings.start_positions_path(work.pipeline.name))
        raise TableError(
            f"{file} is damaged ({type(error).__name__}: {error}). It says where the duty for each "
            "shard begins. Restore it from a backup. If there is none, delete it: an intact ledger writes it again "
            "with its next plan. A ledger that is rebuilt without it reports for each shard which logs it may lack",
            table=work.storage.uri,
        ) from error
    return StartPositions(first, ends) if is_same_or_more(source, work.pipeline.source.identity) else StartPositions()


def keep(work: Work) -> None:
    """Writes what the ledger knows of the pipeline's shards into the table, which must exist."""
    if content := to_keep(work):
        findings.write_start_positions(work.storage, work.pipeline.name, content)


def to_keep(work: Work) -> str:
    """The content to keep in the table: the ledger's duties joined with those kept before; empty if nothing changed.

    Of two begins of a shard the earlier one counts, of two ends the later one. Late shards are left out: a rebuilt
    ledger takes every shard that is not kept for late.
    """
    before, shards = read(work), work.ledger.shards(work.pipeline.name)
    now = before.joined(
        StartPositions(
            {shard.id: shard.first for shard in shards if shard.status != LATE},
            {shard.id: shard.end for shard in shards if shard.status == GONE},
        )
    )
    if now == before:
        return ""
    positions = {
        "source": work.pipeline.source.identity,
        "first": dict(sorted(now.first.items())),
        "gone": dict(sorted(now.gone.items())),
    }
    return json.dumps(positions, separators=(",", ":"))
