"""The same base files for readers of Iceberg and Delta: where their metadata is kept."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from airflow_provider_slshudi.config.values import Model, Uri

DELTA_SCHEMES = ("file:", "s3:", "s3a:")
"""How paths of tables begin that can have a Delta mirror."""


class IcebergMirror(Model):
    """An Iceberg table over the Hudi table's base files (iceberg.apache.org).

    `catalog` is an Airflow connection of type `slshudi_iceberg`, `table` the table's name there, with its namespace.
    `location`, by default the Hudi table's path and `_iceberg`, is where Iceberg keeps its metadata. At least `keep`
    snapshots stay for time travel, at most twice as many, unless a clean deletes their files.
    """

    catalog: str = Field(min_length=1)
    table: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)+$")]
    location: Uri | None = None
    keep: int = Field(10, gt=0, le=1000)


class DeltaMirror(Model):
    """A Delta table over the Hudi table's base files (delta.io): a folder `_delta_log` in the table's folder."""


class Mirrors(Model):
    """The mirrors of a table; each one follows the Hudi table's timeline."""

    iceberg: IcebergMirror | None = None
    delta: DeltaMirror | None = None

    @model_validator(mode="after")
    def _one_at_least(self) -> Mirrors:
        if self.iceberg is None and self.delta is None:
            raise ValueError("give iceberg, delta or both: `delta: {}` has no settings")
        return self
