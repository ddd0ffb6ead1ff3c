"""The code of each verb, given a gateway to the JVM; `__main__` starts that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import ManifestError, TableError, TimelineUnreadable
from airflow_provider_slshudi.handover import batch_files, fencing, findings, rewrite_plan
from airflow_provider_slshudi.handover.batch_files import QUARANTINE, Attempt, Owner
from airflow_provider_slshudi.handover.findings import (
    Findings,
    leave_comparison,
    leave_counts,
    leave_findings,
    read_findings,
)
from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.handover.rewrite_plan import Written
from airflow_provider_slshudi.handover.verification_report import question
from airflow_provider_slshudi.hudi import markers, properties
from airflow_provider_slshudi.hudi.beside import Beside, require_part, route_keys, tables_beside
from airflow_provider_slshudi.hudi.client import (
    beside,
    catalog,
    commit,
    instants,
    metadata_table,
    rewriting,
    services,
    uploads,
)
from airflow_provider_slshudi.hudi.client import clock as instant_clock
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.instant_metadata import COMPACTION, TRANSACTION_KEY, action
from airflow_provider_slshudi.hudi.layout import CLUSTERING, LAYOUT_1, METADATA_FOLDER, PROPERTIES, Phase
from airflow_provider_slshudi.hudi.timeline import CHANGES, Timeline
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.system.points import Point, reach
from airflow_provider_slshudi.system.processes import clock

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from airflow_provider_slshudi.spark.driver.key_access import Keys


def open_instant(gateway: Gateway, order: JobOrder) -> None:
    """Puts a new instant of the transaction on the table's timeline; makes the table if there was none yet.

    Raises:
        TimelineUnreadable: there is no table, and there was one when the batch was planned.
    """
    pipeline, storage = _table(order)
    if (described := properties.read_settled(storage)) is not None:
        instants.check_table(gateway, pipeline, described)
    elif order.creates:
        instants.create_table(gateway, pipeline)
    else:
        raise TimelineUnreadable(
            f"{storage.uri}: there is no table here any more ({PROPERTIES} is missing), and no new one is made. See "
            "whether it is mounted, and whether this machine's settings lead to the right store",
            table=storage.uri,
        )
    if pipeline.table.upsert is not None:
        _require_no_other_upsert(pipeline, Timeline.load(storage))
    if order.duties:
        findings.write_start_positions(storage, pipeline.name, order.duties)
    meta = instants.meta_client(gateway, storage.uri)
    instant = instants.new_instant_time(gateway, storage.uri, meta)
    tables = [table for table in tables_beside(pipeline) if table.is_wanted]
    for table in tables:
        beside.make_table(gateway, table, instant)
    reach(Point.OPEN_TABLE_READY)
    paths = {table.key: table.storage.uri for table in tables_beside(pipeline)}
    owner = Owner(order.transaction, pipeline.name, order.token, paths)
    with _forgotten_unless_requested(storage, instant):
        # The owner first: a crash in between leaves no instant without an owner.
        batch_files.write_owner(storage, instant, owner)
        reach(Point.OPEN_OWNED)
        instants.request(gateway, storage.uri, instant, action(pipeline.table), None if tables else meta)
    reach(Point.OPEN_REQUESTED)
    print(f"opened instant {instant} for transaction {order.transaction}")


@contextmanager
def _forgotten_unless_requested(storage: Storage, instant: str) -> Iterator[None]:
    """Removes what the instant's opening left if it fails, as on a full disk, before the instant is on the timeline."""
    try:
        yield
    except Exception:
        # With its own errors aside: the opening's error tells what is wrong.
        with suppress(TimelineUnreadable):
            if Timeline.load(storage).get(instant) is None:
                fencing.delete(storage, instant)
        raise


def _require_no_other_upsert(pipeline: Pipeline, timeline: Timeline) -> None:
    """Layout 1 has no completion times, by which a commit tells that another write was completed after it began."""
    if timeline.layout is not LAYOUT_1:
        return
    for instant in timeline.pending():
        if instant.action in CHANGES or instant.action == CLUSTERING:
            raise TableError(
                f"{pipeline.table.path}: {instant.action} {instant.time} of another client is {instant.phase.value}, "
                "and this batch would not see the rows that it completes later: have that client finish it or roll it "
                "back, or bring the table to version 9, where batches tell by completion times",
                table=pipeline.table.path,
                instant=instant.time,
            )


def append(spark: SparkContext, order: JobOrder, keys: Keys, cpu_before: float = 0.0) -> None:
    """Carries out the batch order that the transaction left on the table, with the pipeline as it was then.

    `keys` say where tasks are told the log service's credentials. `cpu_before`: CPU seconds of this process that others
    told.

    Args:
        spark: the driver's context.
        order: names the transaction, its token and instant.
        keys: see above.
        cpu_before: see above, in seconds.
    """
    from airflow_provider_slshudi.spark.driver import replay_rows
    from airflow_provider_slshudi.spark.driver.append import append
    from airflow_provider_slshudi.spark.driver.key_access import granted
    from airflow_provider_slshudi.spark.driver.upsert import upsert

    # The batch's own pipeline, whose digest is known, is the one that is validated.
    storage = Storage(str(order.pipeline["table"]["path"]))
    batch = _attempt(storage, order).order(order.digest)
    pipeline = batch.described
    gateway = Gateway.of(spark)
    gateway.cpu_before = cpu_before
    reach(Point.APPEND_STARTED)
    if batch.replay is not None:
        manifest = replay_rows.replay(spark, gateway, storage, batch)
    else:
        write = append if pipeline.table.upsert is None else upsert
        with granted(spark, pipeline.source, keys) as access:
            manifest = write(spark, gateway, storage, batch, access)
    reach(Point.APPEND_LEFT_MANIFEST)
    print(f"instant {order.instant}: {batch_files.rows_of(manifest.stats)} rows in {len(manifest.stats)} files")


def commit_instant(gateway: Gateway, order: JobOrder) -> None:
    """Commits the instant with the manifest that was recorded, then its parts in tables beside, if it has any.

    If the batch has such parts and the main instant is completed already, only their commits are missing, so the main
    instant stays as it is.

    Raises:
        ManifestError: the manifest, or the commit's extra metadata, is not the one that was recorded.
        TableError: the instant is not INFLIGHT, or the time to commit it is over.
    """
    pipeline, storage = _table(order)
    attempt = _attempt(storage, order)
    manifest, digest = attempt.manifest()
    if digest != order.digest or manifest.transaction != order.transaction:
        raise ManifestError(
            f"{storage.uri}: the manifest of instant {order.instant} is not the one that was recorded "
            f"(SHA-256 {digest}, recorded {order.digest})",
            table=storage.uri,
            transaction=order.transaction,
            instant=order.instant,
        )
    extra = attempt.read_extra(order.extra)
    in_time = partial(_in_time, storage, order, f"commit instant {order.instant}")
    owner = batch_files.read_owner(storage, order.instant)
    parts = [(_part(pipeline, owner, key), stats) for key, stats in manifest.beside.items()]
    if not parts or not _is_ours(storage, order):
        for table, _ in parts:
            require_part(table, order.instant)
        reach(Point.COMMIT_STARTED)
        may_complete = partial(_may_complete, storage, order, in_time)
        commit.commit(gateway, pipeline, order.instant, manifest.stats, extra, may_complete)
        reach(Point.COMMIT_COMPLETED)
    for table, stats in parts:
        beside.complete(gateway, table, order.instant, stats, order.transaction, in_time)
        reach(Point.COMMIT_QUARANTINED)
    print(f"committed instant {order.instant}: {manifest.rows} rows, {manifest.quarantined} of them quarantined")


def roll_back(gateway: Gateway, order: JobOrder) -> None:
    """Rolls the instant back, those beside first: while the main one is pending, recovery comes back for all.

    Raises:
        TableError: the main one is completed, and Hudi would undo that; or the time to roll back is over.
    """
    pipeline, storage = _table(order)
    owner = batch_files.read_owner(storage, order.instant)
    reach(Point.ROLLBACK_STARTED)
    in_time = partial(_in_time, storage, order, f"roll instant {order.instant} back")
    in_time()
    _require_uncommitted(storage, order.instant)
    tables = _beside(pipeline, owner)
    for place in (storage, *(table.storage for table in tables)):
        uploads.end_of(gateway, place, order.instant)
    for table in tables:
        beside.roll_back(gateway, table, order.instant)
    reach(Point.ROLLBACK_QUARANTINE)
    markers.drop_misread(storage, order.instant)
    timeline = Timeline.load(storage)
    # Another client may have rolled the main one back without knowing of the quarantine's.
    if action := timeline.action(order.instant):
        undo = rewriting.roll_back_compaction if action == COMPACTION else commit.roll_back
        in_time()
        undo(gateway, pipeline, order.instant)
        if action in (CLUSTERING, COMPACTION):
            markers.bar(storage, order.instant)
    reach(Point.ROLLBACK_COMPLETED)
    print(f"rolled back instant {order.instant}")


def plan_clean(gateway: Gateway, order: JobOrder) -> None:
    """Puts a clean on the timeline if there is something to delete."""
    pipeline, storage = _table(order)
    _in_time(storage, order, "plan a clean")
    services.plan_clean(gateway, pipeline, order.keep)
    reach(Point.CLEAN_PLANNED)


def clean(gateway: Gateway, order: JobOrder) -> None:
    """Completes the clean that is planned."""
    pipeline, storage = _table(order)
    reach(Point.CLEAN_STARTED)
    _in_time(storage, order, f"clean as instant {order.instant}")
    services.clean(gateway, pipeline)
    reach(Point.CLEAN_COMPLETED)
    print(f"completed clean {order.instant}")


def archive(gateway: Gateway, order: JobOrder) -> None:
    """Archives the oldest instants."""
    pipeline, storage = _table(order)
    reach(Point.ARCHIVE_STARTED)
    _in_time(storage, order, "archive")
    services.archive(gateway, pipeline, order.keep)
    storage.sync()
    reach(Point.ARCHIVE_COMPLETED)
    for table in map(Storage, pipeline.table_paths):
        if ended := uploads.end_old(gateway, table):
            print(f"{table.uri}: ended {ended} uploads that killed tasks had left")


def count_quarantine(gateway: Gateway, order: JobOrder) -> None:
    """Counts the quarantine's logs and leaves the figures for the asker, named by the order's transaction."""
    from airflow_provider_slshudi.spark.driver import replay_rows

    pipeline, storage = _table(order)
    leave_counts(storage, order.transaction, replay_rows.count(gateway, pipeline))


@dataclass(frozen=True)
class _Rewriting:
    """The three parts of a service that replaces files by others, with their crash points."""

    planning: Callable[[Gateway, Pipeline], None]
    writing: Callable[[Gateway, Pipeline, str, Callable[[], None]], Written]
    completing: Callable[[Gateway, Pipeline, str, str, Callable[[], None]], None]
    action: str
    planned: Point
    inflight: Point
    written: Point
    left_manifest: Point
    started: Point
    completed: Point

    def plan(self, gateway: Gateway, order: JobOrder) -> None:
        """Puts a plan on the timeline if there is something to do; on a local disk it is durable before it is begun."""
        pipeline, storage = _table(order)
        _in_time(storage, order, f"plan a {self.action}")
        self.planning(gateway, pipeline)
        storage.sync()
        reach(self.planned)

    def write(self, spark: SparkSession, order: JobOrder, _: Keys) -> None:
        """Writes the files that are planned, and leaves a manifest."""
        pipeline, storage = _table(order)
        inflight = partial(reach, self.inflight)
        written = self.writing(Gateway.of(spark.sparkContext), pipeline, order.instant, inflight)
        reach(self.written)
        _leave(storage, order.instant, written)
        reach(self.left_manifest)

    def complete(self, gateway: Gateway, order: JobOrder) -> None:
        """Completes it with the files of its manifest."""
        pipeline, storage = _table(order)
        written = rewrite_plan.read_manifest(storage, order.instant, order.digest)
        reach(self.started)
        in_time = partial(_in_time, storage, order, f"complete {self.action} {order.instant}")
        may_complete = partial(_may_complete, storage, order, in_time)
        self.completing(gateway, pipeline, order.instant, written.metadata, may_complete)
        reach(self.completed)


_CLUSTERING = _Rewriting(
    rewriting.plan_clustering,
    rewriting.cluster,
    rewriting.complete_clustering,
    CLUSTERING,
    Point.CLUSTER_PLANNED,
    Point.CLUSTER_INFLIGHT,
    Point.CLUSTER_WRITTEN,
    Point.CLUSTER_LEFT_MANIFEST,
    Point.CLUSTER_STARTED,
    Point.CLUSTER_COMPLETED,
)
_COMPACTION = _Rewriting(
    rewriting.plan_compaction,
    rewriting.compact,
    rewriting.complete_compaction,
    COMPACTION,
    Point.COMPACT_PLANNED,
    Point.COMPACT_INFLIGHT,
    Point.COMPACT_WRITTEN,
    Point.COMPACT_LEFT_MANIFEST,
    Point.COMPACT_STARTED,
    Point.COMPACT_COMPLETED,
)


def compare_metadata(gateway: Gateway, order: JobOrder) -> None:
    """Compares the metadata table with the files on storage, and leaves the result for the asker."""
    pipeline, storage = _table(order)
    comparison = metadata_table.compare(gateway, pipeline, storage)
    ahead = instant_clock.ahead_of_metadata(gateway, storage)
    leave_comparison(storage, order.transaction, replace(comparison, ahead=ahead))


def rebuild_metadata(gateway: Gateway, order: JobOrder) -> None:
    """Makes the metadata table anew; adds and removes bounds by the findings of `look`, if there are any."""
    pipeline, storage = _table(order)
    reach(Point.METADATA_STARTED)
    _in_time(storage, order, "rebuild the metadata table")
    # Hudi's listing takes files for committed once archival has passed their instant.
    if leftovers := metadata_table.sweep(storage):
        print(f"deleted {len(leftovers)} files of instants that were rolled back: {', '.join(leftovers[:3])}")
    bounds = (read_findings(storage, order.transaction, order.digest) if order.transaction else None) or Findings()
    metadata_table.rebuild(gateway, pipeline, partial(reach, Point.METADATA_DELETED), bounds.lacking, bounds.hiding)
    reach(Point.METADATA_MADE)


def look(gateway: Gateway, order: JobOrder) -> None:
    """Looks for faults that other clients left in the table, and leaves the findings for the asker."""
    pipeline, storage = _table(order)
    leave_findings(storage, order.transaction, metadata_table.look(gateway, pipeline))


def unescape(_: Gateway, order: JobOrder) -> None:
    """Makes the table's properties say that its folders' names are not escaped."""
    pipeline, storage = _table(order)
    _in_time(storage, order, "change the table's properties")
    if not pipeline.escapes_folders:
        properties.put(storage, metadata_table.ESCAPED, "false")


def change_version(gateway: Gateway, order: JobOrder) -> None:
    """Makes the table one of the version that the order's pipeline says."""
    pipeline, storage = _table(order)
    _in_time(storage, order, "change the table's version")
    services.change(gateway, pipeline, partial(reach, Point.VERSION_CHANGED))
    storage.sync()


def sync(gateway: Gateway, order: JobOrder) -> None:
    """Brings the table's entry in the catalog up to its newest commit."""
    pipeline, _ = _table(order)
    if pipeline.catalog is not None:
        catalog.sync(gateway, pipeline, pipeline.catalog)


_Act = Callable[[Gateway, JobOrder], None]


def _timed(act: _Act, but_for: str = "", settles: bool = False) -> _Act:
    """`act` with Hudi's clock past every time on the timelines, without those of the table `but_for`.

    `settles`: the verb runs under the lease, and sets the timeline zone of tables in another zone to UTC.
    """

    def timed(gateway: Gateway, order: JobOrder) -> None:
        tables = instant_clock.tables_of(_table(order)[0], but_for)
        with instant_clock.rising(gateway, tables) as in_utc:
            if settles and in_utc:
                instant_clock.to_utc(tables)
            act(gateway, order)

    return timed


CONTROL: dict[Verb, _Act] = {
    Verb.OPEN: _timed(open_instant),
    Verb.COMMIT: _timed(commit_instant, settles=True),
    Verb.ROLLBACK: _timed(roll_back),
    Verb.PLAN_CLEAN: _timed(plan_clean),
    Verb.CLEAN: _timed(clean),
    Verb.ARCHIVE: _timed(archive),
    Verb.COUNT_QUARANTINE: count_quarantine,
    Verb.PLAN_CLUSTERING: _timed(_CLUSTERING.plan),
    Verb.COMPLETE_CLUSTERING: _timed(_CLUSTERING.complete),
    Verb.PLAN_COMPACTION: _timed(_COMPACTION.plan),
    Verb.COMPLETE_COMPACTION: _timed(_COMPACTION.complete),
    Verb.COMPARE_METADATA: compare_metadata,
    # The metadata table that it makes anew may be the one with times in the future.
    Verb.REBUILD_METADATA: _timed(rebuild_metadata, but_for=METADATA_FOLDER),
    Verb.LOOK: look,
    Verb.UNESCAPE: unescape,
    Verb.VERSION: _timed(change_version),
    Verb.SYNC: sync,
}
"""The code of the verbs that are not distributed."""


def verify(spark: SparkSession, order: JobOrder, keys: Keys) -> None:
    """Carries out the verification that the order names."""
    from airflow_provider_slshudi.spark.driver import verify
    from airflow_provider_slshudi.spark.driver.key_access import granted

    pipeline, storage = _table(order)
    inquiry = question(storage, order.transaction, order.digest)
    with granted(spark.sparkContext, pipeline.source, keys) if inquiry.source is not None else nullcontext() as access:
        verify.verify(spark, pipeline, storage, order.transaction, inquiry, access)


SESSION: dict[Verb, Callable[[SparkSession, JobOrder, Keys], None]] = {
    Verb.VERIFY: verify,
    Verb.CLUSTER: _CLUSTERING.write,
    Verb.COMPACT: _COMPACTION.write,
}
"""The code of the verbs whose executors need Hudi's classes."""


def _leave(storage: Storage, instant: str, written: Written) -> None:
    """Leaves the manifest; if the instant was rolled back meanwhile, deletes the files, which came too late.

    A driver that stood still for minutes may find that another run took over.
    """
    try:
        _require_inflight(storage, instant)
    except TableError:
        storage.delete_files(written.paths)
        raise
    rewrite_plan.write_manifest(storage, instant, written)
    print(f"instant {instant}: {written.read_files} files became {len(written.paths)}")


def _table(order: JobOrder) -> tuple[Pipeline, Storage]:
    pipeline = order.described
    return pipeline, Storage(pipeline.table.path)


def _beside(pipeline: Pipeline, owner: Owner | None) -> list[Beside]:
    """The tables beside as an instant was opened with them; without an owner those of the pipeline's file."""
    if owner is None or not owner.beside:
        return tables_beside(pipeline)
    return [Beside(key, pipeline, path) for key, path in owner.beside.items()]


def _part(pipeline: Pipeline, owner: Owner | None, key: str) -> Beside:
    """A table beside in which the batch has a part: where the file has it, or where it was if it is not in the file."""
    in_file = key in (QUARANTINE, *route_keys(pipeline))
    return Beside(key, pipeline, "" if in_file or owner is None else owner.beside.get(key, ""))


def _attempt(storage: Storage, order: JobOrder) -> Attempt:
    return Attempt(storage, order.transaction, order.instant, order.token)


def _in_time(storage: Storage, order: JobOrder, what: str) -> None:
    """Checks that this driver may still change the timeline.

    Raises:
        TableError: its time is over, or another driver took its claim.
    """
    if clock() > order.until > 0:
        raise TableError(
            f"{storage.uri}: the time to {what} was over; nothing was done",
            table=storage.uri,
            instant=order.instant or None,
        )
    if order.claim:
        fencing.require_claim(storage, order.claim, what)


def _may_complete(storage: Storage, order: JobOrder, in_time: Callable[[], None]) -> None:
    in_time()
    _require_inflight(storage, order.instant)


def _require_uncommitted(storage: Storage, instant: str) -> None:
    timeline = Timeline.load(storage)
    entry = timeline.get(instant)
    if entry is not None and entry.phase is Phase.COMPLETED and instant not in timeline.rolling_back:
        raise TableError(
            f"{storage.uri}: instant {instant} is completed, and a completed instant is never rolled back; nothing was "
            "done",
            table=storage.uri,
            instant=instant,
        )


def _is_ours(storage: Storage, order: JobOrder) -> bool:
    """Whether the instant is completed, by this transaction."""
    extra = Timeline.load(storage).extra_of(order.instant) or {}
    return extra.get(TRANSACTION_KEY) == order.transaction


def _require_inflight(storage: Storage, instant: str) -> None:
    timeline = Timeline.load(storage)
    entry = timeline.get(instant)
    state = entry.phase.value if entry else "not on the timeline"
    if instant in timeline.rolling_back:
        state = "being rolled back"
    if state != Phase.INFLIGHT.value:
        raise TableError(
            f"{storage.uri}: instant {instant} is {state}, only an inflight one can be committed",
            table=storage.uri,
            instant=instant,
        )
