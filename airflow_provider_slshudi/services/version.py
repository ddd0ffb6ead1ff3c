"""Changes Hudi's version of the table, and of its quarantine, while nothing is under way."""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.config.table import FORMER_VERSION
from airflow_provider_slshudi.exceptions import BatchUnderWay, ConfigError, TableError
from airflow_provider_slshudi.handover import fencing
from airflow_provider_slshudi.handover.job_order import Verb
from airflow_provider_slshudi.hudi import moving, properties
from airflow_provider_slshudi.hudi.beside import tables_beside
from airflow_provider_slshudi.hudi.layout import METADATA_FOLDER, PROPERTIES
from airflow_provider_slshudi.hudi.properties import VERSION
from airflow_provider_slshudi.hudi.statistics import PARTITIONS
from airflow_provider_slshudi.ledger.lease import Lease
from airflow_provider_slshudi.services.maintenance import fit, require_table, tables_of
from airflow_provider_slshudi.services.metadata import compared_metadata, rebuilt_metadata
from airflow_provider_slshudi.services.rewrite import compact
from airflow_provider_slshudi.spark.resident import end_stopped
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.dangling import is_quiet
from airflow_provider_slshudi.transaction.settle import register, settle

_TIMES = 4


def versions(work: Work) -> dict[str, str]:
    """The versions of the table and of its quarantine, by their places.

    Raises:
        TableError: there is no table.
    """
    require_table(work)
    return {each.storage.uri: _version(each) for each in tables_of(work)}


def change(work: Work, to: int) -> None:
    """Brings the table and its quarantine to version `to`; settles what is undecided first.

    Hudi would roll back what is pending, and compact log files without the pipeline's executors. So nothing may be
    pending, and a compaction of ours comes first.

    Raises:
        ConfigError: that version cannot have what the pipeline asks for, or the pipeline's file names another one.
        BatchUnderWay: a batch is between its plan and its end.
        TableError: there is no table, or something else is pending on its timeline.
        LeaseHeld, TimelineUnreadable, LedgerUnavailable, JobFailed: try again later.
        LedgerAhead, LedgerLost, ForeignWrite, PipelineConflict: a person has to look; nothing was done.
    """
    pipeline = _of_version(work.pipeline, to)
    register(work)
    _put_back_what_was_cut_off(work)
    settle(work, lambda run: None)
    require_table(work)
    merged = _deltacommits(work)
    if pipeline.compacts:
        now = pipeline.maintenance.model_copy(update={"compact_after": 1})
        compact(replace(work, pipeline=work.pipeline.model_copy(update={"maintenance": now})))
    with work.lease() as lease:
        fit(work)
        tables = tables_of(work)
        for each in tables:
            _require_nothing_pending(each)
        if pipeline.compacts and _deltacommits(work) != merged:
            raise TableError(
                f"{work.storage.uri}: a batch was committed while log files were compacted: pause the DAGs of pipeline "
                f"{work.pipeline.name}, then run this again",
                table=work.storage.uri,
            )
        files = [_healthy_files(each, lease) for each in tables]
        for each, count in zip(tables, files, strict=True):
            table = each.pipeline.table.model_copy(update={"version": to})
            order = replace(each, pipeline=_with(each.pipeline, table=table)).order()
            moves = FORMER_VERSION in (to, int(_version(each)))
            # Each file of a timeline that moves is read and written several times.
            each.change(lease, Verb.VERSION, order, count + (_TIMES * len(moving.files(each.storage)) if moves else 0))
            if (version := _version(each)) != str(to):
                raise TableError(
                    f"{each.storage.uri}: the job ended well, but the table is of version {version}, not {to}",
                    table=each.storage.uri,
                )
            if moves:
                rebuilt_metadata(each, lease, only_damaged=True)


def _put_back_what_was_cut_off(work: Work) -> None:
    """Undoes a change that was cut off while Hudi moved the timeline, of the table and of its quarantine."""
    with work.lease() as lease:
        # Not by `tables_of`: properties that are cut off are settle's.
        for each in (work, *(replace(work, pipeline=table.pipeline) for table in tables_beside(work.pipeline))):
            if moving.is_cut_off(each.storage):
                # Who moved it may stand still; a claim does not stop Hudi within its steps.
                end_stopped()
                fencing.claim(each.storage, by=str(work.run), to="put the timeline back", instant="")
                moving.put_back(each.storage, lease.renew)
            elif each.storage.exists(PROPERTIES):
                moving.forget(each.storage)
            table_properties = properties.read(each.storage) or {}
            if table_properties.get(PARTITIONS) and not each.storage.exists(METADATA_FOLDER):
                rebuilt_metadata(each, lease, only_damaged=True)


def _of_version(pipeline: Pipeline, to: int) -> Pipeline:
    table = pipeline.table
    if why := table.refusal_of(to):
        raise ConfigError(why, source=pipeline.name, field="table.version", value=to)
    if table.version not in (None, to):
        raise ConfigError(
            f"the file of pipeline {pipeline.name} says `version: {table.version}`: write {to} there first, or batches "
            "stop at the changed table",
            source=pipeline.name,
            field="table.version",
            value=table.version,
        )
    return _with(pipeline, table=table.model_copy(update={"version": to}))


def _with(pipeline: Pipeline, **changes: object) -> Pipeline:
    return pipeline.model_copy(update=changes)


def _healthy_files(work: Work, lease: Lease) -> int:
    """How many files the table has, if its metadata table, which may be made anew, is as it should be."""
    comparison = compared_metadata(work, lease)
    if not comparison.ok:
        raise TableError(
            f"{work.storage.uri}: the metadata table differs from the files on storage "
            f"({', '.join(comparison.examples) or comparison.unreadable or comparison.ahead}): "
            f"run `slshudi table rebuild-metadata {work.pipeline.name}` first",
            table=work.storage.uri,
        )
    return comparison.files


def _deltacommits(work: Work) -> list[str]:
    """The batches of a Merge-On-Read table that may have left log files."""
    return [instant.time for instant in work.timeline().completed("deltacommit")]


def _version(work: Work) -> str:
    return (properties.read(work.storage) or {}).get(VERSION, "")


def _require_nothing_pending(work: Work) -> None:
    name = work.pipeline.name
    for live in work.ledger.live(name):
        raise BatchUnderWay(
            f"transaction {live.id} of {live.dag_id}/{live.run_id} is {live.state.value}, and Hudi rolls back what is "
            f"pending when a table's version changes: pause the DAGs of pipeline {name}, and run this again once it is "
            "committed or aborted",
            pipeline=name,
            transaction=live.id,
            active=not is_quiet(work.ledger, live),
        )
    for instant in work.timeline().pending():
        raise TableError(
            f"{work.storage.uri}: {instant.action} {instant.time} is {instant.phase.value}, and Hudi rolls back what "
            "is pending when a table's version changes: pause the DAGs of the pipeline and finish it (`slshudi "
            "recover`, the maintenance DAG, or the client that began it), then run this again",
            table=work.storage.uri,
            instant=instant.time,
        )
