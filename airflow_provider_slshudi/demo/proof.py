"""Counts the demo's logs and rows in independent ways."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_slshudi.hudi.schema import RECORD_KEY
from airflow_provider_slshudi.protocol.verify import verify
from airflow_provider_slshudi.protocol.work import Work


@dataclass(frozen=True)
class Proof:
    """Logs that the service acknowledged, rows by Spark and by hudi-rs, distinct row keys, and `verify`'s verdict."""

    put: int
    by_spark: int
    by_hudi_rs: int
    distinct_keys: int
    verified: bool

    @property
    def holds(self) -> bool:
        """Whether all counts are equal."""
        return self.verified and len({self.put, self.by_spark, self.by_hudi_rs, self.distinct_keys}) == 1


def prove(work: Work, put: int) -> Proof:
    """Counts the table."""
    found = verify(work)
    distinct = found.rows - found.totals.doubled
    return Proof(put, found.rows, _rows_by_hudi_rs(work.storage.uri), distinct, found.ok)


def _rows_by_hudi_rs(uri: str) -> int:
    """The rows of the newest snapshot's files, as the Rust reader finds and reads them."""
    from hudi import HudiReadOptions, HudiTableBuilder

    table = HudiTableBuilder.from_base_uri(uri).build()
    options = HudiReadOptions(projection=[RECORD_KEY])
    return sum(batch.num_rows for batch in table.read_stream(options))
