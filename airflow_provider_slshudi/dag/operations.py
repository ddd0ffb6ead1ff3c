"""DAGs beside the tail: what people start, and what looks after the table; each of its own, or all in one.

`dag.factories` says how a DAG file names the pipeline.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.providers.standard.operators.python import BranchPythonOperator
from airflow.sdk import DAG, Param

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.dag.factories import dag_of_role, described, explained, micro_batch, most_runs
from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.handover.names import (
    BACKFILL,
    MAINTENANCE,
    OPERATIONS,
    OVERRIDE,
    PARAMS_SOURCE,
    REPAIR,
    VERIFY,
    Act,
)
from airflow_provider_slshudi.operators.backfill import PARAMS as BACKFILL_PARAMS
from airflow_provider_slshudi.operators.backfill import SlsHudiBackfillPlanOperator, SlsHudiBackfillRestOperator
from airflow_provider_slshudi.operators.base import refuse_unknown_params
from airflow_provider_slshudi.operators.events import settled_alias
from airflow_provider_slshudi.operators.maintenance import (
    SlsHudiArchiveOperator,
    SlsHudiCleanOperator,
    SlsHudiClusterOperator,
    SlsHudiCompactOperator,
    SlsHudiMirrorOperator,
    SlsHudiVerifyOperator,
)
from airflow_provider_slshudi.operators.repair import SlsHudiRecoverOperator, SlsHudiRepairOperator
from airflow_provider_slshudi.sensors.settle import SlsHudiDanglingSensor

_CURSOR: dict[str, Any] = {"type": "string", "pattern": "^[A-Za-z0-9+/=]+$"}
_CURSORS: dict[str, Any] = {
    "type": ["object", "null"],
    "propertyNames": {"pattern": "^[0-9]+$"},
    "additionalProperties": {"type": "array", "items": _CURSOR, "minItems": 2, "maxItems": 2},
}
_TIME: dict[str, Any] = {"type": ["string", "null"], "format": "date-time"}
_MOST_OPERATIONS = 16


def operations_dag(pipeline: str | Pipeline, **dag_kwargs: Any) -> DAG:
    """`{name}_operations`: what the DAGs of backfill, verification, repair and maintenance do; arguments and errors as
    `tail_dag`.

    The param `act` says what a run does: the maintenance by the schedule, and what a person asks for. A user who may
    trigger this DAG may do all of it; what may lose data stays in a DAG of its own (`override_dag`). Runs go on side by
    side, so that no backfill holds up a repair; a table's service runs once at a time.
    """
    config, of_pipeline = described(pipeline, dag_kwargs)
    repairs = [act.value for act in Act if act.role == REPAIR]
    proof = {} if config.table.upsert else _verify_params()
    acts = [MAINTENANCE, BACKFILL, *([VERIFY] if proof else []), *repairs]
    description = "Other params are of one of them; the pipeline's page says what each does"
    act = Param(MAINTENANCE, type="string", enum=acts, title="What to do", description=description)
    arguments = {
        "schedule": config.maintenance.every,
        "params": {"act": act, **_backfill_params(), **proof, **_reason_params()},
        "description": f"{config.table.path}: its maintenance, and what a person asks for",
        "max_active_runs": most_runs(dag_kwargs.get("schedule", config.maintenance.every), False, _MOST_OPERATIONS),
    }
    with dag_of_role(config, OPERATIONS, dag_kwargs, **arguments) as dag:
        one_at_a_time = {**of_pipeline, "max_active_tis_per_dag": 1}
        _maintain(config, one_at_a_time)
        first = {MAINTENANCE: [*dag.roots], BACKFILL: [_backfill(of_pipeline)]}
        dag.get_task("batch.append").max_active_tis_per_dag = 1  # as where one backfill runs at a time
        first[REPAIR] = [SlsHudiRepairOperator(task_id=REPAIR, **one_at_a_time, role=REPAIR)]
        if proof:
            first[VERIFY] = [SlsHudiVerifyOperator(task_id=VERIFY, **one_at_a_time)]
        tasks = {role: [task.task_id for task in heads] for role, heads in first.items()}
        choose = BranchPythonOperator(task_id="choose", python_callable=_chosen, op_kwargs={"tasks": tasks})
        choose >> [task for heads in first.values() for task in heads]
    return explained(config, dag)


def _chosen(tasks: Mapping[str, list[str]], **context: Any) -> list[str]:
    """The first tasks of what a run was asked to do.

    Raises:
        AirflowFailException: it was also given what no act or another one reads, so that this one is hardly meant.
    """
    try:
        return tasks[_asked(tasks, context)]
    except ConfigError as error:
        # What the run was given stays so in each retry.
        raise AirflowFailException(str(error)) from None


def _asked(roles: Collection[str], context: Any) -> str:
    """The role whose DAG would do what a run was asked to do."""
    run_conf = context["dag_run"].conf or {}
    params_of = {BACKFILL: BACKFILL_PARAMS, VERIFY: _verify_params(), REPAIR: _reason_params()}
    owners = {name: role for role, names in params_of.items() for name in names}
    refuse_unknown_params(context, ("act", *owners))
    act = context["params"].get("act", MAINTENANCE)
    role = act if act in roles else REPAIR
    for name, value in run_conf.items():
        if name == "act" and value != act:
            why = "Airflow's [core] dag_run_conf_overrides_params is off. Nothing was done; turn it on"
        elif value and owners.get(name, role) != role:
            why = f"the run does {act}. Nothing was done; trigger it again with the `act` that you mean, and its params"
        else:
            continue
        raise ConfigError(f"{name}: {value!r}: {why}", source=PARAMS_SOURCE, field=name, value=value)
    return role


def backfill_dag(pipeline: str | Pipeline, **dag_kwargs: Any) -> DAG:
    """`{name}_backfill`: reads the unread ranges that the params name; arguments and errors as `tail_dag`.

    One run is one batch; if more is left, it triggers the next run.
    """
    config, of_pipeline = described(pipeline, dag_kwargs)
    arguments = {"params": _backfill_params(), "description": f"{config.source.identity}: what was left out or skipped"}
    with dag_of_role(config, BACKFILL, dag_kwargs, **arguments) as dag:
        _backfill(of_pipeline)
    return explained(config, dag)


def _backfill_params() -> dict[str, Param]:
    return {
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


def _backfill(of_pipeline: Mapping[str, Any]) -> Any:
    """Adds a backfill's tasks; gives the first."""
    batch = micro_batch(**of_pipeline, plan=SlsHudiBackfillPlanOperator)
    planned: Any = batch.get_child_by_label("plan")
    batch >> SlsHudiBackfillRestOperator(task_id="rest", **of_pipeline, planned=planned.output)
    return batch.get_child_by_label("settle")


def recovery_dag(pipeline: str | Pipeline, **dag_kwargs: Any) -> DAG:
    """`{name}_recovery`: waits for dangling batches and commits them again, or rolls them back; as `tail_dag` else.

    A run that a person triggers decides at once. With a `schedule`, each run waits without a worker slot until
    something dangles, and is skipped where nothing did within an hour: a tail settles at its own beginning, so that is
    for pipelines whose tail is seldom, or paused.
    """
    config, of_pipeline = described(pipeline, dag_kwargs)
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
    with dag_of_role(config, "recovery", dag_kwargs, **arguments) as dag:
        dangling = SlsHudiDanglingSensor(task_id="dangling", **of_pipeline)
        dangling >> SlsHudiRecoverOperator(task_id="recover", outlets=[settled_alias(config)], **of_pipeline)
    return explained(config, dag)


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
    config, of_pipeline = described(pipeline, dag_kwargs)
    params = {
        "act": Param(
            first and first.value,
            type="string" if first else ["string", "null"],
            enum=[*(act.value for act in Act if act.role == role), *([] if first else [None])],
            title="What to do",
            description="The pipeline's page says what each does",
        ),
        **_reason_params(),
    }
    if role == OVERRIDE:
        of_skip = "SHARD:BEGIN-END, the end excluded, of `skip`"
        params["cursors"] = Param(None, type=["string", "null"], title="Cursors", description=of_skip)
    description = f"{config.table.path}: what a person has to decide"
    # It runs when a person presses a button, never by itself.
    arguments: dict[str, Any] = {"description": description, "is_paused_upon_creation": False}
    with dag_of_role(config, role, dag_kwargs, params=params, **arguments) as dag:
        SlsHudiRepairOperator(task_id=role, **of_pipeline, role=role)
    return explained(config, dag)


def _reason_params() -> dict[str, Param]:
    return {
        "reason": Param("", type="string", title="Why", description="Stays in the pipeline's history"),
        "transaction": Param(
            None, type=["string", "null"], title="Transaction", description="The batch that is meant, if it is one"
        ),
    }


def verify_dag(pipeline: str | Pipeline, **dag_kwargs: Any) -> DAG:
    """`{name}_verify`: proves that every log is in the table once, or fails; arguments and errors as `tail_dag`."""
    config, of_pipeline = described(pipeline, dag_kwargs)
    arguments = {"params": _verify_params(), "description": f"{config.table.path}: every log once"}
    with dag_of_role(config, VERIFY, dag_kwargs, **arguments) as dag:
        SlsHudiVerifyOperator(task_id=VERIFY, **of_pipeline)
    return explained(config, dag)


def _verify_params() -> dict[str, Param]:
    description = "Compare with what the log service still holds, too"
    return {"source": Param(False, type="boolean", title="Source", description=description)}


def maintenance_dag(pipeline: str | Pipeline, **dag_kwargs: Any) -> DAG:
    """`{name}_maintenance`: clusters or compacts, cleans and archives while batches go on, as often as the pipeline's
    `maintenance.schedule` says; arguments and errors as `tail_dag`.
    """
    config, of_pipeline = described(pipeline, dag_kwargs)
    arguments = {
        "schedule": config.maintenance.every,
        "description": f"{config.table.path}: files and timeline stay few",
    }
    with dag_of_role(config, MAINTENANCE, dag_kwargs, **arguments) as dag:
        _maintain(config, of_pipeline)
    return explained(config, dag)


def _maintain(config: Pipeline, of_pipeline: Mapping[str, Any]) -> None:
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
