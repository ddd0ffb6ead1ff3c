"""The table in a catalog, where other engines find it by name.

It decides nothing and says only what the table's timeline says already, so it needs no lease and may be repeated; what
one run could not say the next one does.
"""

from __future__ import annotations

from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.notes.job import Verb
from airflow_provider_slshudi.protocol.work import Work


def sync(work: Work) -> None:
    """Brings what the catalog says of the table up to its newest commit.

    Raises:
        ConfigError: the pipeline's file names no catalog.
        JobFailed: the metastore does not answer, or refused; its message ends with what it said.
    """
    pipeline = work.pipeline
    if pipeline.catalog is None:
        raise ConfigError(
            f"pipeline {pipeline.name} names no `catalog` to tell of its table", source=pipeline.name, field="catalog"
        )
    work.launcher.run(Verb.SYNC, work.order(), {})
