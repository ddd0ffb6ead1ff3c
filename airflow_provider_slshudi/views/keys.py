"""Keys of logs that no column names."""

from __future__ import annotations

from collections.abc import Collection, Container
from datetime import datetime

from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import UnnamedKey


def unnamed(ledger: Ledger, pipeline: str, named: Container[str] = ()) -> list[UnnamedKey]:
    """The keys, and the fields of structs' JSON, that no column of a pipeline names, the newest first.

    Args:
        ledger: the ledger.
        pipeline: the pipeline's name.
        named: the keys that its file names by now (`Pipeline.named_keys`); the ledger learns them by the next batch.
    """
    return [key for key in ledger.unnamed_keys([pipeline]) if key.key not in named]


def new_keys(ledger: Ledger, since: datetime, names: Collection[str] | None = None) -> list[UnnamedKey]:
    """The keys that batches of all pipelines, or of those named, saw for the first time at `since` (UTC) or later.

    Each key of a pipeline is among them for one time only, the newest first. `UnnamedKey.told` says one in a sentence.
    """
    return ledger.unnamed_keys(names, since)
