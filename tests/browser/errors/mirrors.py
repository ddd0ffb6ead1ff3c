"""Errors of a pipeline's mirror: the batch is committed, and the mirror is made up for later."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.browser.errors.play import Scenarios
from tests.browser.errors.stage import Stage
from tests.machine import connection

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

SCENARIOS = Scenarios()
_TABLE = "lake.mirrored"
_MIRROR = {"iceberg": {"catalog": "slshudi_iceberg", "table": _TABLE}}


@SCENARIOS.of("MirrorFailed", mirror=_MIRROR)
def mirror_failed(stage: Stage) -> str:
    """The disk with the mirror's catalog is away."""
    folder = _with_catalog(stage)
    stage.put(100)
    run = stage.begin()
    stage.sees("MirrorFailed", "unable to open database file")
    folder.mkdir()
    stage.ended(run)  # one of its retries may have found it
    stage.goes_on()
    _catalog(folder).load_table(_TABLE)
    return "bring the catalog back, run now"


@SCENARIOS.of("MirrorRefused", mirror=_MIRROR)
def mirror_refused(stage: Stage) -> str:
    """A table without partitions already has the mirror's name."""
    from pyiceberg.schema import Schema

    folder = _with_catalog(stage)
    folder.mkdir()
    catalog = _catalog(folder)
    catalog.create_namespace("lake")
    catalog.create_table(_TABLE, Schema(), f"file://{folder}/other")
    stage.put(100)
    stage.fails(stage.begin())
    failure = stage.sees("MirrorRefused", "drop it, and the next run makes it anew")
    catalog.drop_table(_TABLE)
    stage.goes_on(within=failure)
    assert catalog.load_table(_TABLE).spec().fields
    return "drop the mirror, run now"


def _with_catalog(stage: Stage) -> Path:
    """Tells the pipeline's tasks of a catalog in SQLite; returns its folder, which is not there yet."""
    folder = stage.world.home / f"{stage.name}_catalog"
    stage.machine(AIRFLOW_CONN_SLSHUDI_ICEBERG=connection("slshudi_iceberg", host=_uri(folder), extra={"type": "sql"}))
    return folder


def _catalog(folder: Path) -> Catalog:
    from pyiceberg.catalog import load_catalog

    return load_catalog("slshudi_iceberg", type="sql", uri=_uri(folder))


def _uri(folder: Path) -> str:
    return f"sqlite:///{folder / 'catalog.db'}"
