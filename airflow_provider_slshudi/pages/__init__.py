"""Pages in Airflow: a plugin whose routes show what `views` has. They read the ledger and write nothing."""

from __future__ import annotations

PREFIX = "/slshudi"
"""Where Airflow's API server serves the pages."""
_TAG, _LONGEST = "slshudi:", 100


def tag_of(pipeline: str) -> str | None:
    """The tag by which the pages know a pipeline's DAGs; None for a name that is too long for Airflow's tags."""
    tag = f"{_TAG}{pipeline}"
    return tag if len(tag) <= _LONGEST else None


def pipeline_of(tag: str) -> str | None:
    """The pipeline that a tag names; None if it is not one of `tag_of`."""
    return tag.removeprefix(_TAG) if tag.startswith(_TAG) else None
