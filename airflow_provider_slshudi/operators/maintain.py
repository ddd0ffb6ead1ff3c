"""Table services as tasks; batches may go on meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.links import PipelineLink, SparkLink
from airflow_provider_slshudi.operators.base import PipelineOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_slshudi.protocol.rewrite import Rewritten
    from airflow_provider_slshudi.protocol.work import Work


class SlsHudiCleanOperator(PipelineOperator):
    """Deletes replaced files that the pipeline's `maintenance.keep` no longer keeps.

    Returns `{"instant": the clean's, None if there was nothing to do, "files": deleted files, "bytes": their bytes}`.

    Args:
        pipeline: a pipeline's name or file.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Cleans."""
        from airflow_provider_slshudi.protocol.maintain import clean

        with self.told(context):
            done = clean(self.work(context))
        if done.instant is None:
            self.log.info("nothing to clean")
        else:
            self.log.info("clean %s: %d files, %d bytes deleted", done.instant, done.files, done.bytes)
        return asdict(done)


class SlsHudiArchiveOperator(PipelineOperator):
    """Moves the oldest instants from the active timeline into the archive, as the pipeline's `maintenance` says.

    Returns `{"instants": archived ones, "commits": left on the active timeline, "held_by": the pending instant that
    holds archival back, or None}`.

    Args:
        pipeline: a pipeline's name or file.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Archives."""
        from airflow_provider_slshudi.protocol.maintain import archive

        with self.told(context):
            done = archive(self.work(context))
        self.log.info("archived %d instants, %d commits stay on the active timeline", done.instants, done.commits)
        return asdict(done)


class SlsHudiClusterOperator(PipelineOperator):
    """Makes few files of many small ones, as the pipeline's `maintenance.clustering` says.

    Returns `{"instant": the clustering's, None if there was nothing to do, "files", "bytes": read, "into_files",
    "into_bytes": written}`.

    Args:
        pipeline: a pipeline's name or file.
    """

    operator_extra_links = (PipelineLink(), SparkLink())

    def execute(self, context: Context) -> dict[str, Any]:
        """Clusters."""
        from airflow_provider_slshudi.protocol.rewrite import cluster

        return self.rewrite(context, cluster, "clustering")

    def rewrite(self, context: Context, service: Callable[[Work], Rewritten], name: str) -> dict[str, Any]:
        """Runs the service, and logs how many files became how many."""
        with self.told(context):
            done = service(self.work(context))
        if done.instant is None:
            self.log.info("nothing to %s", service.__name__)
        else:
            said = "%s %s: %d files of %d bytes became %d files of %d bytes"
            self.log.info(said, name, done.instant, done.files, done.bytes, done.into_files, done.into_bytes)
        return asdict(done)


class SlsHudiCompactOperator(SlsHudiClusterOperator):
    """Makes base files of log files, after each `maintenance.compact_after` commits.

    Returns the same keys as `SlsHudiClusterOperator`, for a compaction.

    Args:
        pipeline: a pipeline's name or file.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Compacts."""
        from airflow_provider_slshudi.protocol.rewrite import compact

        return self.rewrite(context, compact, "compaction")


class SlsHudiRebuildMetadataOperator(PipelineOperator):
    """Compares the metadata table with the files on storage and makes it anew if it is damaged; batches wait.

    Returns `{"rebuilt": whether it was damaged, "files": on storage, "lacking", "gone", "differing", "leftovers",
    "unknown", "unreadable", "examples": as found before the rebuild}`.

    Args:
        pipeline: a pipeline's name or file.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Compares and rebuilds."""
        from airflow_provider_slshudi.protocol.metadata import rebuild

        with self.told(context):
            before, _ = rebuild(self.work(context), only_damaged=True)
        found = asdict(before)
        self.log.info("the metadata table is %s: %s", "as it should be" if before.ok else "made anew", found)
        return {"rebuilt": not before.ok, **found, "examples": list(before.examples)}
