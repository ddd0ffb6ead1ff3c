"""Tasks that look after a table: cleaning, archiving, rewriting, its entry in a catalog, its mirrors, its proof."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_slshudi.operators.base import PipelineOperator, refuse_unknown_params
from airflow_provider_slshudi.plugins.links import PipelineLink, SparkLink
from airflow_provider_slshudi.settings import stem

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_slshudi.services.rewrite import Rewritten
    from airflow_provider_slshudi.transaction.context import Work


class SlsHudiCleanOperator(PipelineOperator):
    """Deletes replaced files that the pipeline's `maintenance.keep` no longer keeps, nor a consumer's `hold`.

    Returns `{"instant": the clean's, None if there was nothing to do, "files": deleted files, "bytes": their bytes}`.

    Args:
        pipeline: a pipeline's name or file, or a `Pipeline`; connections as in `PipelineOperator`.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Cleans."""
        from airflow_provider_slshudi.services.maintenance import clean

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
        pipeline: a pipeline's name or file, or a `Pipeline`; connections as in `PipelineOperator`.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Archives."""
        from airflow_provider_slshudi.services.maintenance import archive

        with self.told(context):
            done = archive(self.work(context))
        self.log.info("archived %d instants, %d commits stay on the active timeline", done.instants, done.commits)
        return asdict(done)


class SlsHudiClusterOperator(PipelineOperator):
    """Makes few files of many small ones, as the pipeline's `maintenance.clustering` says.

    Returns `{"instant": the clustering's, None if there was nothing to do, "files", "bytes": read, "into_files",
    "into_bytes": written}`.

    Args:
        pipeline: a pipeline's name or file, or a `Pipeline`; connections as in `PipelineOperator`.
    """

    operator_extra_links = (PipelineLink(), SparkLink())

    def execute(self, context: Context) -> dict[str, Any]:
        """Clusters."""
        from airflow_provider_slshudi.services.rewrite import cluster

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
        pipeline: a pipeline's name or file, or a `Pipeline`; connections as in `PipelineOperator`.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Compacts."""
        from airflow_provider_slshudi.services.rewrite import compact

        return self.rewrite(context, compact, "compaction")


class SlsHudiRebuildMetadataOperator(PipelineOperator):
    """Compares the metadata table with the files on storage and makes it anew if it is damaged; batches wait.

    Returns `{"rebuilt": whether it was damaged, "files": on storage, "lacking", "gone", "differing", "leftovers",
    "unknown", "unreadable", "examples": as found before the rebuild}`.

    Args:
        pipeline: a pipeline's name or file, or a `Pipeline`; connections as in `PipelineOperator`.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Compares and rebuilds."""
        from airflow_provider_slshudi.services.metadata import rebuild_metadata

        with self.told(context):
            before, _ = rebuild_metadata(self.work(context), only_damaged=True)
        comparison = asdict(before)
        self.log.info("the metadata table is %s: %s", "as it should be" if before.ok else "made anew", comparison)
        return {"rebuilt": not before.ok, **comparison, "examples": list(before.examples)}


class SlsHudiSyncOperator(PipelineOperator):
    """Tells the pipeline's `catalog` of the table's columns and partitions as of its newest commit; may be repeated.

    Args:
        pipeline: a pipeline's name or file, or a `Pipeline`; connections as in `PipelineOperator`.
    """

    def execute(self, context: Context) -> None:
        """Synchronises."""
        from airflow_provider_slshudi.services.maintenance import sync

        with self.told(context):
            sync(self.work(context))


class SlsHudiMirrorOperator(PipelineOperator):
    """Brings the pipeline's `mirror` up to the table's newest completed instant, in this process; may be repeated.

    Returns `{"iceberg" or "delta": {"instants": those that got a snapshot of their own, "reconciled": whether all files
    were compared instead}}`.

    Args:
        pipeline: a pipeline's name or file, or a `Pipeline`; connections as in `PipelineOperator`.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Mirrors."""
        from airflow_provider_slshudi.services.mirrors import mirror

        with self.told(context):
            done = mirror(self.work(context))
        for name, followed in done.items():
            how = "by comparing all files" if followed.reconciled else f"{len(followed.instants)} instants"
            self.log.info("%s mirror: %s", name, how)
        return {name: {**asdict(followed), "instants": list(followed.instants)} for name, followed in done.items()}


class SlsHudiVerifyOperator(PipelineOperator):
    """Compares the table's rows with the ledger, and fails if a row is missing, doubled, foreign or unreadable.

    The DAG param `source` (or the argument of that name, if the DAG has no such param) says whether to read the service
    again, too. Batches may go on meanwhile.

    Returns the totals, `as_of`, and how many ranges were compared.

    Args:
        pipeline: a pipeline's name or file, or a `Pipeline`; connections as in `PipelineOperator`.
        source: compare with the logs that the service still holds, too.
    """

    operator_extra_links = (PipelineLink(), SparkLink())

    def __init__(self, *, source: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.source = source

    def execute(self, context: Context) -> dict[str, Any]:
        """Verifies."""
        from airflow_provider_slshudi.services.verification import verify

        with self.told(context):
            refuse_unknown_params(context, ("source",))
            proof = verify(self.work(context), bool(context["params"].get("source", self.source)))
            totals: dict[str, Any] = {
                "as_of": proof.as_of,
                "ranges": len(proof.ranges),
                **proof.totals.to_dict(),
                "unreadable": proof.unreadable,
            }
            if not proof.ok:
                raise AirflowFailException(
                    f"pipeline {stem(self.pipeline)}: not every log is in the table once: {proof.complaint()}. "
                    f"`slshudi verify {stem(self.pipeline)}` lists the ranges"
                )
        self.log.info("every log is in the table once: %s", totals)
        return totals
