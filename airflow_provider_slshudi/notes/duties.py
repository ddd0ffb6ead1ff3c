"""Where each pipeline's duty for each shard begins, in `shards/`."""

from __future__ import annotations

from airflow_provider_slshudi.notes import ROOT
from airflow_provider_slshudi.storage import Storage


def write(storage: Storage, pipeline: str, content: str) -> None:
    """Keeps where the pipeline's duty for each shard begins."""
    storage.write(path_of(pipeline), content.encode())


def read(storage: Storage, pipeline: str) -> bytes | None:
    """The file with the pipeline's duties, None where there is none."""
    return storage.read(path_of(pipeline))


def path_of(pipeline: str) -> str:
    """Where the pipeline's duties are kept."""
    return f"{ROOT}/shards/{pipeline}.json"
