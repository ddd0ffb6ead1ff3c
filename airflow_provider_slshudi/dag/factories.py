"""A pipeline as DAGs; a DAG file names the pipeline and calls one of these.

    from airflow_provider_slshudi import tail_dag

    dag = tail_dag("ad_events")

The pipeline's file lies beside the DAG file, as `pipelines/ad_events.yaml` for example (docs/decisions/0030). A wrong
one raises ConfigError with file and line, which Airflow shows as the DAG's import error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from airflow.providers.common.compat.sdk import conf
from airflow.sdk import DAG, AssetAlias, Param, TaskGroup

from airflow_provider_slshudi import dagfile, settings
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.config.values import every
from airflow_provider_slshudi.dag import task_docs
from airflow_provider_slshudi.handover.names import ALERTS, BATCH, OVERRIDE, REPAIR, Act, tag_of
from airflow_provider_slshudi.operators.backfill import SlsHudiBackfillPlanOperator, SlsHudiBackfillRestOperator
from airflow_provider_slshudi.operators.batch import (
    SlsHudiAppendOperator,
    SlsHudiCommitOperator,
    SlsHudiOpenOperator,
    SlsHudiPlanOperator,
    SlsHudiRecordOperator,
)
from airflow_provider_slshudi.operators.events import settled_alias, table_asset
from airflow_provider_slshudi.operators.fleet import SlsHudiBatchOperator, SlsHudiLookOperator
from airflow_provider_slshudi.operators.maintenance import (
    SlsHudiArchiveOperator,
    SlsHudiCleanOperator,
    SlsHudiClusterOperator,
    SlsHudiCompactOperator,
    SlsHudiMirrorOperator,
    SlsHudiSyncOperator,
    SlsHudiVerifyOperator,
)
from airflow_provider_slshudi.operators.repair import SlsHudiRecoverOperator, SlsHudiRepairOperator
from airflow_provider_slshudi.operators.watch import SlsHudiWatchOperator
from airflow_provider_slshudi.sensors.settle import SlsHudiDanglingSensor, SlsHudiSettleSensor

_RETRIES = {"retries": 2, "retry_delay": timedelta(seconds=10)}
_CURSOR: dict[str, Any] = {"type": "string", "pattern": "^[A-Za-z0-9+/=]+$"}
_CURSORS: dict[str, Any] = {
    "type": ["object", "null"],
    "propertyNames": {"pattern": "^[0-9]+$"},
    "additionalProperties": {"type": "array", "items": _CURSOR, "minItems": 2, "maxItems": 2},
}
_TIME: dict[str, Any] = {"type": ["string", "null"], "format": "date-time"}


# One that works, one that waits for it, and one for when both die at once.
_MOST_TAILS = 3
# A run lasts as long as its slowest batch; one without news lasts a second.
_MOST_FLEETS = 16
_NEWS = timedelta(minutes=10)
# Airflow runs cron expressions in the zone of a DAG's start, and takes one without zone for its default zone's.
_START = datetime(2024, 1, 1)


def tail_dag(pipeline: str | Pipeline, **dag_kwargs: Any) -> DAG:
    """`{name}_tail`: reads new logs, as often as the pipeline's `schedule` or `freshness` says, one batch at a time.

    More runs may be there: they wait without a worker slot, and one goes on where another died and Airflow has not
    noticed (docs/decisions/0032-back-within-a-minute.md). Airflow allows one run with `@continuous`; and with a
    `dagrun_timeout`, which counts while a run waits, there is one unless `max_active_runs` says more. With
    `@continuous` the plan waits for news, so that runs do not start for nothing.

    Args:
        pipeline: a pipeline's name or file, or a `Pipeline` that is made in Python.
        dag_kwargs: the DAG's arguments; they replace ours. `sls_conn_id`, `spark_conn_id`, `ledger_conn_id` and
            `storage_conn_id` among them name connections of its tasks, as in `PipelineOperator`.

    Raises:
        ConfigError: the pipeline file is missing or wrong.
    """
    config, of_pipeline = _described(pipeline, dag_kwargs)
    described = f"{config.source.identity}: what is new"
    schedule = dag_kwargs.get("schedule", config.every)
    runs = _runs(schedule, "dagrun_timeout" in dag_kwargs, _MOST_TAILS)
    arguments = {"schedule": config.every, "description": described, "max_active_runs": runs}
    with _dag(config, "tail", dag_kwargs, **arguments) as dag:
        wait = _NEWS if _is_endless(schedule) else timedelta()
        micro_batch(**of_pipeline, plan=partial(SlsHudiPlanOperator, wait=wait))
    return _explained(config, dag)


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
    runs = _runs(schedule, "dagrun_timeout" in dag_kwargs, _MOST_FLEETS)
    arguments = {"schedule": schedule, "max_active_runs": runs, "description": f"{len(names)} pipelines: what is new"}
    stems = [*map(settings.stem, names)]
    owner = (dag_kwargs.get("default_args") or {}).get("owner", "")
    page = task_docs.of_fleet(stems, schedule, _named(owner))
    with _made(name, stems, {**arguments, "doc_md": page, **dag_kwargs}) as dag:
        wait = _NEWS if _is_endless(schedule) else timedelta()
        look = SlsHudiLookOperator(
            task_id="look",
            pipelines=names,
            wait=wait,
            doc_md=task_docs.of_fleets_task("look", _named(owner)),
            **connections,
        )
        batch = SlsHudiBatchOperator.partial(
            task_id=BATCH,
            retries=0,
            map_index_template="{{ task.called }}",
            outlets=[AssetAlias(f"hudi_{name}_settled")],
            doc_md=task_docs.of_fleets_task(BATCH, _named(owner)),
            **connections,
        )
        batch.expand(pipeline=look.output)
    return dag


def backfill_dag(pipeline: str | Pipeline, **dag_kwargs: Any) -> DAG:
    """`{name}_backfill`: reads the unread ranges that the params name; arguments and errors as `tail_dag`.

    One run is one batch; if more is left, it triggers the next run.
    """
    config, of_pipeline = _described(pipeline, dag_kwargs)
    params = {
        "cursors": Param(
            None, title="Cursors", description='{"0": ["begin", "end"]}: cursors in quotes, end excluded', **_CURSORS
        ),
        "from": Param(None, title="From", description="First receive time, instead of cursors", **_TIME),
        "to": Param(None, title="To", description="Receive time that is not read any more", **_TIME),
        "everything": Param(
            False, type="boolean", title="Everything", description="All that the service holds and no batch has read"
        ),
        "dry_run": Param(
            False, type="boolean", title="Dry run", description="Only say what would be read, and how long it takes"
        ),
    }
    arguments = {"params": params, "description": f"{config.source.identity}: what was left out or skipped"}
    with _dag(config, "backfill", dag_kwargs, **arguments) as dag:
        batch = micro_batch(**of_pipeline, plan=SlsHudiBackfillPlanOperator)
        planned: Any = batch.get_child_by_label("plan")
        batch >> SlsHudiBackfillRestOperator(task_id="rest", **of_pipeline, planned=planned.output)
    return _explained(config, dag)


def recovery_dag(pipeline: str | Pipeline, **dag_kwargs: Any) -> DAG:
    """`{name}_recovery`: waits for dangling batches and commits them again, or rolls them back; as `tail_dag` else.

    A run that a person triggers decides at once. With a `schedule`, each run waits without a worker slot until
    something dangles, and is skipped where nothing did within an hour: a tail settles at its own beginning, so that is
    for pipelines whose tail is seldom, or paused.
    """
    config, of_pipeline = _described(pipeline, dag_kwargs)
    params = {
        "transactions": Param(
            None,
            type=["array", "null"],
            items={"type": "string"},
            title="Transactions",
            description="Ids to decide although their run has not ended",
        )
    }
    arguments = {"params": params, "description": f"{config.table.path}: decide what runs left undecided"}
    with _dag(config, "recovery", dag_kwargs, **arguments) as dag:
        dangling = SlsHudiDanglingSensor(task_id="dangling", **of_pipeline)
        dangling >> SlsHudiRecoverOperator(task_id="recover", outlets=[settled_alias(config)], **of_pipeline)
    return _explained(config, dag)


def repair_dag(pipeline: str | Pipeline, **dag_kwargs: Any) -> DAG:
    """`{name}_repair`: the buttons of the pipeline's page that lose nothing; arguments and errors as `tail_dag`.

    A user who may trigger this DAG may use them.
    """
    return _acts_dag(pipeline, REPAIR, Act.RECOVER, dag_kwargs)


def override_dag(pipeline: str | Pipeline, **dag_kwargs: Any) -> DAG:
    """`{name}_override`: the buttons of the pipeline's page that may lose data; arguments and errors as `tail_dag`.

    A user who may trigger this DAG may use them, so give it permissions of its own, as by `access_control`.
    """
    return _acts_dag(pipeline, OVERRIDE, None, dag_kwargs)


def _acts_dag(pipeline: str | Pipeline, role: str, first: Act | None, dag_kwargs: dict[str, Any]) -> DAG:
    """A DAG that does the acts of a role; `first` is what its form in Airflow proposes."""
    config, of_pipeline = _described(pipeline, dag_kwargs)
    params = {
        "act": Param(
            first and first.value,
            type="string" if first else ["string", "null"],
            enum=[*(act.value for act in Act if act.role == role), *([] if first else [None])],
            title="What to do",
            description="The pipeline's page says what each does",
        ),
        "reason": Param("", type="string", title="Why", description="Stays in the pipeline's history"),
        "transaction": Param(
            None, type=["string", "null"], title="Transaction", description="The batch that is meant, if it is one"
        ),
        "cursors": Param(
            None, type=["string", "null"], title="Cursors", description="SHARD:BEGIN-END, the end excluded, of `skip`"
        ),
    }
    description = f"{config.table.path}: what a person has to decide"
    # It runs when a person presses a button, never by itself.
    arguments: dict[str, Any] = {"params": params, "description": description, "is_paused_upon_creation": False}
    with _dag(config, role, dag_kwargs, **arguments) as dag:
        SlsHudiRepairOperator(task_id=role, **of_pipeline, role=role)
    return _explained(config, dag)


def verify_dag(pipeline: str | Pipeline, **dag_kwargs: Any) -> DAG:
    """`{name}_verify`: proves that every log is in the table once, or fails; arguments and errors as `tail_dag`."""
    config, of_pipeline = _described(pipeline, dag_kwargs)
    params = {
        "source": Param(
            False, type="boolean", title="Source", description="Compare with what the log service still holds, too"
        )
    }
    arguments = {"params": params, "description": f"{config.table.path}: every log once"}
    with _dag(config, "verify", dag_kwargs, **arguments) as dag:
        SlsHudiVerifyOperator(task_id="verify", **of_pipeline)
    return _explained(config, dag)


def maintenance_dag(pipeline: str | Pipeline, **dag_kwargs: Any) -> DAG:
    """`{name}_maintenance`: clusters or compacts, cleans and archives while batches go on, as often as the pipeline's
    `maintenance.schedule` says; arguments and errors as `tail_dag`.
    """
    config, of_pipeline = _described(pipeline, dag_kwargs)
    arguments = {
        "schedule": config.maintenance.every,
        "description": f"{config.table.path}: files and timeline stay few",
    }
    with _dag(config, "maintenance", dag_kwargs, **arguments) as dag:
        # Side by side: each service finds its own work, and one that fails does not hold up the others.
        cleaned = SlsHudiCleanOperator(task_id="clean", **of_pipeline)
        cleaned >> SlsHudiArchiveOperator(task_id="archive", **of_pipeline)
        rewriting: list[SlsHudiClusterOperator] = []
        if config.clusters:
            rewriting.append(SlsHudiClusterOperator(task_id="cluster", **of_pipeline))
        if config.compacts:
            rewriting.append(SlsHudiCompactOperator(task_id="compact", **of_pipeline))
        if config.mirror is not None and rewriting:
            rewriting >> SlsHudiMirrorOperator(task_id="mirror", **of_pipeline)
    return _explained(config, dag)


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
    config, of_pipeline = _described(pipeline, dag_kwargs)
    limits = {"behind": behind, "dangling": dangling, "expires": expires}
    arguments = {"schedule": timedelta(minutes=15), "description": f"{config.table.path}: whether a person has to look"}
    with _dag(config, "watch", dag_kwargs, **arguments) as dag:
        SlsHudiWatchOperator(task_id="watch", **of_pipeline, **limits)
    return _explained(config, dag)


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


def _described(pipeline: str | Pipeline, dag_kwargs: dict[str, Any]) -> tuple[Pipeline, dict[str, Any]]:
    """The pipeline, and the arguments of its operators, some of them out of the DAG's."""
    connections = _connections(dag_kwargs)
    config = settings.pipeline(pipeline, dagfile.calling(), settings.Connections(**connections))
    return config, {"pipeline": pipeline, **connections}


def _connections(dag_kwargs: dict[str, Any]) -> dict[str, str | None]:
    """Takes the ids of connections out of a DAG's arguments."""
    return {name: dag_kwargs.pop(name) for name in settings.CONNECTIONS if name in dag_kwargs}


def _runs(schedule: Any, timed: bool, most: int) -> int:
    """How many runs there may be, at most so many: `@continuous`, by word or as a timetable, allows one."""
    return 1 if _is_endless(schedule) or timed else most


def _is_endless(schedule: Any) -> bool:
    """Whether a run starts as soon as the one before has ended."""
    return schedule == "@continuous" or getattr(schedule, "active_runs_limit", None) is not None


def _dag(pipeline: Pipeline, role: str, dag_kwargs: dict[str, Any], **ours: Any) -> DAG:
    arguments = {"schedule": None, **ours, **dag_kwargs}
    owner = (arguments.get("default_args") or {}).get("owner", "")
    page = task_docs.of_dag(pipeline, role, arguments["schedule"], _named(owner))
    if pipeline.timezone is not None:
        arguments = {"start_date": _START.replace(tzinfo=ZoneInfo(pipeline.timezone)), **arguments}
    return _made(f"{pipeline.name}_{role}", [pipeline.name], {"doc_md": page, **arguments})


def _made(dag_id: str, pipelines: Iterable[str], given: dict[str, Any]) -> DAG:
    defaults: dict[str, Any] = {
        "dag_id": dag_id,
        "start_date": _START,
        "catchup": False,
        "max_active_runs": 1,
    }
    given = {**defaults, **given}
    # By these tags the pages know whose DAG it is.
    known_by = [tag for tag in ("slshudi", *map(tag_of, pipelines)) if tag is not None]
    if any(callbacks.get("on_failure_callback") for callbacks in (given, given.get("default_args") or {})):
        known_by.append(ALERTS)
    given["tags"] = [*dict.fromkeys([*known_by, *(given.get("tags") or ())])]
    given["default_args"] = {**_RETRIES, **(given.get("default_args") or {})}
    dag = DAG(**given)
    if (file := dagfile.calling()) is not None:
        # As Airflow does once it has parsed the file; a DAG that is imported without it would seem to be of here.
        dag.fileloc = str(file.path)
    return dag


def _explained(pipeline: Pipeline, dag: DAG) -> DAG:
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
