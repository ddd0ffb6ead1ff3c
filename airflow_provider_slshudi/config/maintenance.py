"""The table services of a pipeline."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field, model_validator

from airflow_provider_slshudi.config.values import Model, Schedule, Size, every, parse_size


class Keep(Model):
    """How long replaced files stay for readers of older snapshots: some hours, or until so many later commits."""

    hours: Annotated[int, Field(gt=0)] | None = None
    commits: Annotated[int, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Keep:
        if (self.hours is None) == (self.commits is None):
            raise ValueError("give either hours or commits")
        return self


class Clustering(Model):
    """Files below `small_file` become files of up to `target_file` bytes (hudi.apache.org/docs/clustering).

    `sort` puts their rows in the order of these columns, one after the other (`linear`) or along a curve through all of
    them (`zorder`), so that queries that filter by them skip files.
    """

    small_file: Size = parse_size("64MiB")
    target_file: Size = parse_size("256MiB")
    sort: list[str] = Field(default_factory=list)
    order: Literal["linear", "zorder"] = "linear"

    @model_validator(mode="after")
    def _leaves_no_small_files(self) -> Clustering:
        if self.small_file >= self.target_file:
            raise ValueError(
                "expected small_file < target_file, or files would be rewritten again and again; found "
                f"{self.small_file}, {self.target_file}"
            )
        if self.order == "zorder" and len(self.sort) < 2:
            raise ValueError("order zorder needs two columns in `sort` at least")
        return self


class Maintenance(Model):
    """How often the table's services run, and how much they keep.

    Cleaning deletes replaced files (hudi.apache.org/docs/cleaning). Once the active timeline has more than
    `max_commits`, archival moves the oldest into the archive, down to `min_commits` (hudi.apache.org/docs/archival).
    With `clustering: null` small files stay as they are. After `compact_after` commits the log files of a Merge-On-Read
    table become base files (hudi.apache.org/docs/compaction).
    """

    schedule: Schedule = "1h"
    keep: Keep = Keep(hours=24)
    min_commits: int = Field(100, gt=0)
    max_commits: int = 150
    clustering: Clustering | None = Clustering()
    compact_after: int = Field(10, gt=0)

    @property
    def every(self) -> timedelta | str:
        """The schedule as Airflow takes it."""
        return every(self.schedule)

    @model_validator(mode="after")
    def _archival_keeps_more(self) -> Maintenance:
        if not (self.keep.commits or 0) < self.min_commits < self.max_commits:
            raise ValueError(
                "expected keep.commits < min_commits < max_commits, found "
                f"{self.keep.commits or 0}, {self.min_commits}, {self.max_commits}"
            )
        return self
