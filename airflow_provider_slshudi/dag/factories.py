"""A pipeline as DAGs; a DAG file names the pipeline and calls one of these.

    from airflow_provider_slshudi import tail_dag

    dag = tail_dag("ad_events")

The pipeline's file lies beside the DAG file, as `pipelines/ad_events.yaml` for example (docs/decisions/0030). A wrong
one raises ConfigError with file and line, which Airflow shows as the DAG's import error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from airflow.providers.common.compat.sdk import conf
from airflow.sdk import DAG, AssetAlias, TaskGroup, TriggerRule

from airflow_provider_slshudi import dagfile, settings
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.config.values import every
from airflow_provider_slshudi.dag import task_docs
from airflow_provider_slshudi.handover.names import ALERTS, BATCH, tag_of
from airflow_provider_slshudi.operators.backfill import SlsHudiBackfillPlanOperator
from airflow_provider_slshudi.operators.batch import (
    SlsHudiAppendOperator,
    SlsHudiCommitOperator,
    SlsHudiOpenOperator,
    SlsHudiPlanOperator,
    SlsHudiRecordOperator,
)
from airflow_provider_slshudi.operators.consumers import SlsHudiPartitionsOperator
from airflow_provider_slshudi.operators.events import partitions_alias, partitions_asset, settled_alias, table_asset
from airflow_provider_slshudi.operators.fleet import SlsHudiBatchOperator, SlsHudiDrainOperator, SlsHudiLookOperator
from airflow_provider_slshudi.operators.maintenance import SlsHudiMirrorOperator, SlsHudiSyncOperator
from airflow_provider_slshudi.operators.watch import SlsHudiWatchOperator
from airflow_provider_slshudi.sensors.settle import SlsHudiSettleSensor

_RETRIES = {"retries": 2, "retry_delay": timedelta(seconds=10)}
# One that works, one that waits for it, and one for when both die at once.
_MOST_TAILS = 3
# A run lasts as long as its slowest batch; one without news lasts a second.
_MOST_FLEETS = 16
_NEWS = timedelta(minutes=10)
# What is complete without a log is told once the wait for news is over.
_NEWS_OF_PARTITIONS = timedelta(minutes=1)
# Airflow runs cron expressions in the zone of a DAG's start, and takes one without zone for its default zone's.
_START = datetime(2024, 1, 1)


def tail_dag(pipeline: str | Pipeline, **dag_kwargs: Any) -> DAG:
    """`{name}_tail`: reads new logs, as often as the pipeline's `schedule` or `freshness` says, one batch at a time.

    More runs may be there: they wait without a worker slot, and one goes on where another died and Airflow has not
    noticed (docs/decisions/0032-back-within-a-minute.md). Airflow allows one run with `@continuous`; and with a
    `dagrun_timeout`, which counts while a run waits, there is one unless `max_active_runs` says more. With
    `@continuous` the plan waits for news, so that runs do not start for nothing. With `batch.drain` a task `drain` goes
    on behind a full batch.

    Where the pipeline declares a `lateness`, its last task `partitions` tells which partitions are complete, behind the
    commit and what catalogs and mirrors are told of it, and also where nothing was new: a DAG that is scheduled on
    `partitions_asset` starts then.

    Args:
        pipeline: a pipeline's name or file, or a `Pipeline` that is made in Python.
        dag_kwargs: the DAG's arguments; they replace ours. `sls_conn_id`, `spark_conn_id`, `ledger_conn_id` and
            `storage_conn_id` among them name connections of its tasks, as in `PipelineOperator`.

    Raises:
        ConfigError: the pipeline file is missing or wrong.
    """
    config, of_pipeline = described(pipeline, dag_kwargs)
    schedule = dag_kwargs.get("schedule", config.every)
    runs = most_runs(schedule, "dagrun_timeout" in dag_kwargs, _MOST_TAILS)
    arguments = {
        "schedule": config.every,
        "description": f"{config.source.identity}: what is new",
        "max_active_runs": runs,
    }
    with dag_of_role(config, "tail", dag_kwargs, **arguments) as dag:
        news = _NEWS if config.lateness is None else _NEWS_OF_PARTITIONS
        wait = news if _is_endless(schedule) else timedelta()
        batch = micro_batch(**of_pipeline, plan=partial(SlsHudiPlanOperator, wait=wait))
        last_tasks: list[TaskGroup | SlsHudiDrainOperator] = [batch]
        if config.batch.drain is not None:
            drain = SlsHudiDrainOperator(task_id="drain", **of_pipeline, outlets=[settled_alias(config)])
            dag.get_task(f"{batch.group_id}.commit") >> drain
            last_tasks.append(drain)
        if config.lateness is not None:
            outlets = [partitions_asset(config), partitions_alias(config)]
            # Also where nothing was new: an hour may be complete without a log.
            last_tasks >> SlsHudiPartitionsOperator(
                task_id="partitions", trigger_rule=TriggerRule.NONE_FAILED, outlets=outlets, **of_pipeline
            )
    return explained(config, dag)


def fleet_dag(pipelines: Sequence[str], name: str = "fleet", **dag_kwargs: Any) -> DAG:
    """`{name}`: what `tail_dag` does, for many pipelines in one DAG, every minute unless `schedule` says otherwise.

    A run looks at all of them at once, and starts a task for each that has something to do: its whole transaction.
    Pipelines with nothing new cost a look. One that fails, is slow or needs a person holds up no other: more runs may
    be there, and each passes over what another works on. The `schedule` of a pipeline's file is not used, and no file
    is read here: one that is wrong fails its own task. It is called as its pipeline.

    A pipeline belongs to one fleet, or has a tail of its own. Backfills, maintenance and the like stay DAGs of each.

    Args:
        pipelines: names or files; or one folder's path, for all files in it.
        name: the DAG's id.
        dag_kwargs: the DAG's arguments; they replace ours. `max_active_tasks` says how many batches go on at a time.

    Raises:
        ConfigError: there is no such folder, or no pipeline, or one is named twice.
    """
    names = settings.fleet(pipelines, dagfile.calling())
    connections = _connections(dag_kwargs)
    schedule = dag_kwargs.pop("schedule", "1m")
    schedule = every(schedule) if isinstance(schedule, str) else schedule
    runs = most_runs(schedule, "dagrun_timeout" in dag_kwargs, _MOST_FLEETS)
    arguments = {"schedule": schedule, "max_active_runs": runs, "description": f"{len(names)} pipelines: what is new"}
    stems = [*map(settings.stem, names)]
    owner = (dag_kwargs.get("default_args") or {}).get("owner", "")
    page = task_docs.of_fleet(stems, schedule, _named(owner))
    with _made(name, stems, {**arguments, "doc_md": page, **dag_kwargs}) as dag:
        wait = _NEWS if _is_endless(schedule) else timedelta()
        alias = AssetAlias(f"hudi_{name}_settled")
        look = SlsHudiLookOperator(
            task_id="look",
            pipelines=names,
            wait=wait,
            outlets=[alias],
            doc_md=task_docs.of_fleets_task("look", _named(owner)),
            **connections,
        )
        batch = SlsHudiBatchOperator.partial(
            task_id=BATCH,
            retries=0,
            map_index_template="{{ task.called }}",
            outlets=[alias],
            doc_md=task_docs.of_fleets_task(BATCH, _named(owner)),
            **connections,
        )
        batch.expand(pipeline=look.output)
    return dag


def watch_dag(
    pipeline: str | Pipeline,
    behind: timedelta | None = None,
    dangling: timedelta | None = None,
    expires: timedelta | None = None,
    **dag_kwargs: Any,
) -> DAG:
    """`{name}_watch`: fails if the pipeline asks for a person, every 15 minutes; arguments and errors as `tail_dag`.

    Name whom Airflow tells in `default_args={"on_failure_callback": [a notifier]}`. Leave at most half an hour between
    two runs: a gap is told for an hour.

    Args:
        pipeline: a pipeline's name or file, or a `Pipeline` that is made in Python.
        behind: told if the oldest unread log is older than this.
        dangling: told if no run has worked on a live batch for longer than this.
        expires: told if the service drops unread logs sooner than this.
        dag_kwargs: the DAG's arguments; they replace ours.
    """
    config, of_pipeline = described(pipeline, dag_kwargs)
    limits = {"behind": behind, "dangling": dangling, "expires": expires}
    arguments = {"schedule": timedelta(minutes=15), "description": f"{config.table.path}: whether a person has to look"}
    with dag_of_role(config, "watch", dag_kwargs, **arguments) as dag:
        SlsHudiWatchOperator(task_id="watch", **of_pipeline, **limits)
    return explained(config, dag)


def micro_batch(
    pipeline: str | Pipeline,
    plan: Callable[..., SlsHudiPlanOperator] = SlsHudiPlanOperator,
    group_id: str = "batch",
    **connections: str | None,
) -> TaskGroup:
    """The steps of one transaction; call it within a DAG, for one batch per DAG run and pipeline.

    Args:
        pipeline: a pipeline's name or file, or a `Pipeline` that is made in Python.
        plan: the operator that plans.
        group_id: of the task group.
        connections: `sls_conn_id`, `spark_conn_id`, `ledger_conn_id`, `storage_conn_id`, as in `PipelineOperator`.

    Raises:
        ConfigError: the pipeline file is missing or wrong.
    """
    config = settings.pipeline(pipeline, dagfile.calling(), settings.Connections(**connections))
    of_pipeline: dict[str, Any] = {"pipeline": pipeline, **connections}
    with TaskGroup(group_id) as group:
        settle = SlsHudiSettleSensor(task_id="settle", **of_pipeline, outlets=[settled_alias(config)])
        planned = plan(task_id="plan", **of_pipeline)
        of_batch: dict[str, Any] = {**of_pipeline, "transaction": planned.output}
        opened = SlsHudiOpenOperator(task_id="open", **of_batch)
        appended = SlsHudiAppendOperator(task_id="append", **of_batch)
        recorded = SlsHudiRecordOperator(task_id="record", **of_batch)
        committed = SlsHudiCommitOperator(task_id="commit", outlets=[table_asset(config)], **of_batch)
        settle >> planned >> opened >> appended >> recorded >> committed
        if config.catalog is not None:
            committed >> SlsHudiSyncOperator(task_id="sync", **of_pipeline)
        if config.mirror is not None:
            committed >> SlsHudiMirrorOperator(task_id="mirror", **of_pipeline)
    _explain(config, group.iter_tasks())
    return group


def described(pipeline: str | Pipeline, dag_kwargs: dict[str, Any]) -> tuple[Pipeline, dict[str, Any]]:
    """The pipeline, and the arguments of its operators, some of them out of the DAG's."""
    connections = _connections(dag_kwargs)
    config = settings.pipeline(pipeline, dagfile.calling(), settings.Connections(**connections))
    return config, {"pipeline": pipeline, **connections}


def _connections(dag_kwargs: dict[str, Any]) -> dict[str, str | None]:
    """Takes the ids of connections out of a DAG's arguments."""
    return {name: dag_kwargs.pop(name) for name in settings.CONNECTIONS if name in dag_kwargs}


def most_runs(schedule: Any, timed: bool, most: int) -> int:
    """How many runs there may be, at most so many: `@continuous`, by word or as a timetable, allows one."""
    return 1 if _is_endless(schedule) or timed else most


def _is_endless(schedule: Any) -> bool:
    """Whether a run starts as soon as the one before has ended."""
    return schedule == "@continuous" or getattr(schedule, "active_runs_limit", None) is not None


def dag_of_role(pipeline: Pipeline, role: str, dag_kwargs: Mapping[str, Any], **ours: Any) -> DAG:
    """A pipeline's DAG without tasks.

    Args:
        pipeline: the pipeline.
        role: what the DAG's name ends with, and which page of documentation it gets.
        dag_kwargs: the arguments that a DAG file gave.
        ours: the arguments in their place.
    """
    arguments = {"schedule": None, **ours, **dag_kwargs}
    owner = (arguments.get("default_args") or {}).get("owner", "")
    page = task_docs.of_dag(pipeline, role, arguments["schedule"], _named(owner))
    if pipeline.timezone is not None:
        arguments = {"start_date": _START.replace(tzinfo=ZoneInfo(pipeline.timezone)), **arguments}
    return _made(f"{pipeline.name}_{role}", [pipeline.name], {"doc_md": page, **arguments})


def _made(dag_id: str, pipelines: Iterable[str], dag_kwargs: dict[str, Any]) -> DAG:
    defaults: dict[str, Any] = {
        "dag_id": dag_id,
        "start_date": _START,
        "catchup": False,
        "max_active_runs": 1,
    }
    arguments = {**defaults, **dag_kwargs}
    # By these tags the pages know whose DAG it is.
    known_by = [tag for tag in ("slshudi", *map(tag_of, pipelines)) if tag is not None]
    if any(callbacks.get("on_failure_callback") for callbacks in (arguments, arguments.get("default_args") or {})):
        known_by.append(ALERTS)
    arguments["tags"] = [*dict.fromkeys([*known_by, *(arguments.get("tags") or ())])]
    arguments["default_args"] = {**_RETRIES, **(arguments.get("default_args") or {})}
    dag = DAG(**arguments)
    if (file := dagfile.calling()) is not None:
        # As Airflow does once it has parsed the file; a DAG that is imported without it would seem to be of here.
        dag.fileloc = str(file.path)
    return dag


def explained(pipeline: Pipeline, dag: DAG) -> DAG:
    """The DAG of a pipeline, each of its tasks with a page of documentation."""
    _explain(pipeline, dag.tasks)
    return dag


def _explain(pipeline: Pipeline, tasks: Iterable[Any]) -> None:
    """Gives each task its page of documentation, unless it has one."""
    for task in tasks:
        step = "plan_backfill" if isinstance(task, SlsHudiBackfillPlanOperator) else task.task_id.rpartition(".")[2]
        task.doc_md = task.doc_md or task_docs.of_task(pipeline, step, _named(task.owner))


def _named(owner: str) -> str:
    """The owner, if the DAG names one: Airflow's default is no person to ask."""
    return "" if owner == conf.get("operators", "default_owner") else owner
