"""Registers the table in a catalog, where other engines find it by name.

This decides nothing and repeats only what the table's timeline says, so it needs no lease and may run again. The next
run makes up for one that failed.
"""

from __future__ import annotations

from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.notes.job import Verb
from airflow_provider_slshudi.protocol.work import Work


def sync(work: Work) -> None:
    """Brings the catalog's entry for the table up to the table's newest commit.

    Raises:
        ConfigError: the pipeline's file names no catalog.
        JobFailed: the metastore did not answer, or refused; the error ends with the metastore's message.
    """
    pipeline = work.pipeline
    if pipeline.catalog is None:
        raise ConfigError(
            f"pipeline {pipeline.name} names no `catalog` to tell of its table", source=pipeline.name, field="catalog"
        )
    work.launcher.run(Verb.SYNC, work.order(), {})
