"""The table's mirrors for readers of Iceberg and Delta, kept up to date by a task.

The Hudi timeline alone decides what is committed; a mirror follows it. So nothing here needs the lease: of two runs at
once one loses, and looks again where the mirror stands.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial

from airflow_provider_slshudi.exceptions import ConfigError, MirrorFailed, SlsHudiError
from airflow_provider_slshudi.hudi.evolution import schema_of_now
from airflow_provider_slshudi.hudi.timeline import CHANGES
from airflow_provider_slshudi.mirror.delta import DeltaMirror
from airflow_provider_slshudi.mirror.following import COMPACTED, Columns, Followed, follow
from airflow_provider_slshudi.mirror.iceberg import IcebergMirror
from airflow_provider_slshudi.transaction.context import Work

_TRIES = 3
_log = logging.getLogger(__name__)
_Mirror = IcebergMirror | DeltaMirror


def mirror(work: Work) -> dict[str, Followed]:
    """Brings each mirror of the table up to the newest completed instant; returns what was done, by format.

    One that fails does not hold up the other.

    Raises:
        ConfigError, ConnectionMissing: the pipeline's file names no mirror, or the connection of its catalog is wrong.
        MirrorFailed: a catalog or storage did not answer; the next run makes up for it.
        MirrorRefused: a mirror cannot show the table; the message says what to do.
        TimelineUnreadable: the table could not be read.
    """
    done: dict[str, Followed] = {}
    errors: list[SlsHudiError] = []
    for name, opened in _mirrors(work):
        try:
            with closing(opened()) as opening:
                done[name] = _followed(work, opening)
        except SlsHudiError as error:
            _log.error("%s", error)
            errors.append(error)
    if errors:
        raise errors[0]
    return done


def release(work: Work, files: Sequence[str]) -> None:
    """Takes files that a clean is about to delete out of the mirrors' snapshots; call it before they are deleted.

    Brings the mirrors up to date, so that no newest snapshot names such a file, and expires older ones that do.

    Raises:
        MirrorError, TimelineUnreadable: as `mirror`; delete nothing then.
    """
    if work.pipeline.mirror is None or not files:
        return
    for _, opened in _mirrors(work):
        with closing(opened()) as opening:
            _followed(work, opening)
            if named := opening.release(files):
                _log.warning("%s: %s will miss files that a clean deletes", work.storage.uri, ", ".join(named))


def _mirrors(work: Work) -> Iterator[tuple[str, Callable[[], _Mirror]]]:
    pipeline, storage = work.pipeline, work.storage
    if pipeline.mirror is None:
        raise ConfigError(f"pipeline {pipeline.name} names no `mirror`", source=pipeline.name, field="mirror")
    if (settings := pipeline.mirror.iceberg) is not None:
        yield "iceberg", lambda: IcebergMirror(pipeline, settings, storage, work.iceberg_catalog(settings.catalog))
    if pipeline.mirror.delta is not None:
        yield "delta", partial(DeltaMirror, pipeline, storage)


def _followed(work: Work, opening: _Mirror) -> Followed:
    """Follows the timeline; looks again where another run was faster or an answer was lost."""
    for tries_left in reversed(range(_TRIES)):
        timeline = work.timeline()
        schema = schema_of_now(work.storage, timeline)
        if schema is None or not timeline.completed(*CHANGES):
            return Followed((), False)
        rows = COMPACTED if work.pipeline.table.type == "merge_on_read" else ""
        try:
            return follow(opening, work.storage, timeline, Columns.of(work.pipeline, schema), rows)
        except MirrorFailed as error:
            if not tries_left:
                raise
            _log.info("looking again where the mirror stands: %s", error)
    raise AssertionError
