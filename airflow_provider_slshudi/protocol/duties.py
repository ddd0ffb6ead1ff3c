"""Where a pipeline's duty for each shard begins, kept in the table: no commit says what was still to be read.

A ledger that is lost would otherwise begin with what commits hold, or anew. The file is `.hoodie/slshudi/shards.json`.
"""

from __future__ import annotations

import json

from airflow_provider_slshudi.hudi.exchange import ROOT
from airflow_provider_slshudi.ledger.records import GONE, LATE, Duties
from airflow_provider_slshudi.protocol.work import Work

_PATH = f"{ROOT}/shards.json"


def read(work: Work) -> Duties:
    """What was kept; empty where nothing was."""
    content = work.storage.read(_PATH)
    found = json.loads(content) if content is not None else {}
    if found.get("pipeline") != work.pipeline.name:
        return Duties()
    return Duties({int(shard): begin for shard, begin in found["first"].items()}, frozenset(found["gone"]))


def keep(work: Work) -> None:
    """Keeps what the ledger knows beside what was kept before; of two begins of a shard the earlier one.

    Shards that are late are left out: what is not kept is late in a ledger that is made anew.
    """
    before, shards = read(work), work.ledger.shards(work.pipeline.name)
    first = {shard.id: shard.first for shard in shards if shard.status != LATE}
    first |= {shard: min(begin, first.get(shard, begin)) for shard, begin in before.first.items()}
    now = Duties(first, before.gone | {shard.id for shard in shards if shard.status == GONE})
    if now != before:
        kept = {"pipeline": work.pipeline.name, "first": dict(sorted(first.items())), "gone": sorted(now.gone)}
        work.storage.write(_PATH, json.dumps(kept, separators=(",", ":")).encode())
