"""`slshudi backfill`."""

from __future__ import annotations

import argparse
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.cli.common import Commands, add_json, add_pipeline, print_json, print_table, work_of

if TYPE_CHECKING:
    from airflow_provider_slshudi.views.progress import Estimate

_RANGE = re.compile(r"(\d+):([^:]+):([^:]+)")


def add_to(commands: Commands) -> None:
    """Adds the command."""
    command = commands.add_parser(
        "backfill",
        help="read what no batch has read: by cursors, by receive times, or everything",
        description="Shows what the backfill would read, and how long it takes; without --dry-run it then starts the "
        "pipeline's backfill DAG, which Airflow runs.",
    )
    add_pipeline(command)
    which = command.add_mutually_exclusive_group(required=True)
    which.add_argument("--everything", action="store_true", help="all that the service holds and no batch has read")
    which.add_argument("--cursors", nargs="+", metavar="SHARD:BEGIN:END", help="cursors, the end excluded")
    which.add_argument("--from", dest="first", metavar="TIME", help="first receive time, with its zone; needs --to")
    which.add_argument("--progress", action="store_true", help="how far the newest backfills are; starts nothing")
    command.add_argument("--to", metavar="TIME", help="receive time that is not read any more")
    command.add_argument("--dry-run", action="store_true", help="start nothing")
    command.add_argument("--run-id", help="the id of the DAG run: a second call with the same id is refused")
    add_json(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.operators.backfill import backfill_request
    from airflow_provider_slshudi.views.progress import estimate_backfill

    if options.progress:
        return _progress(options)
    conf = _conf(options)
    request = backfill_request(conf)
    work = work_of(options.pipeline)
    name = work.pipeline.name
    estimate = estimate_backfill(work, request)
    dag_id = "" if options.dry_run or not estimate.groups else _dag_of(name)
    started = _start(dag_id, options.run_id, conf) if dag_id else None
    if options.json:
        print_json(options.out, {"pipeline": name, **asdict(estimate), "run": started})
    else:
        _show(options, name, estimate)
        print(_queued(name, dag_id, started) if started else "nothing was started", file=options.out)
    return 0


def _queued(name: str, dag_id: str, run: str) -> str:
    """What becomes of a run that was started, and where its end is told."""
    from airflow.models.dag import DagModel

    dag = DagModel.get_dagmodel(dag_id)
    queued = f"run {run} of {dag_id} is queued"
    if dag is not None and dag.is_paused:
        queued += f", and the DAG is paused: it begins after `airflow dags unpause {dag_id}`"
    return f"{queued}. `slshudi backfill {name} --progress` tells how far it is, or why it failed"


def _dag_of(name: str) -> str:
    """The DAG that does a pipeline's backfills; of two names the first where Airflow knows neither."""
    from airflow.models.dag import DagModel

    from airflow_provider_slshudi.handover.names import BACKFILL, OPERATIONS, serving

    dag_models = [DagModel.get_dagmodel(f"{name}_{role}") for role in (BACKFILL, OPERATIONS)]
    dag_ids = {dag.dag_id: dag.is_stale for dag in dag_models if dag is not None}
    gone_dags = [dag for dag, is_stale in dag_ids.items() if is_stale]
    return serving(name, BACKFILL, dag_ids, gone_dags) or f"{name}_{BACKFILL}"


def _progress(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.views.progress import progress, refused
    from airflow_provider_slshudi.views.words import progress as said

    work = work_of(options.pipeline)
    name = work.pipeline.name
    backfills, failed = progress(work.ledger, name), refused(work.ledger, name)
    if options.json:
        begun = [{**asdict(item), "share": item.share, "live": item.live and item.live.id} for item in backfills]
        print_json(options.out, [*begun, *({"deed": asdict(deed)} for deed in failed)])
        return 0
    rows = [(item.deed.at, item.deed.who, item.deed.reason, said(item)) for item in backfills]
    rows += [(deed.at, deed.who, deed.reason, f"it failed: {deed.result}") for deed in failed]
    rows.sort(reverse=True)
    print_table(options.out, f"Backfills of {work.pipeline.name}", ("began", "who", "what", "how far"), rows)
    return 0


def _conf(options: argparse.Namespace) -> dict[str, Any]:
    """The params of the DAG run."""
    from airflow_provider_slshudi.exceptions import ConfigError

    if options.to and not options.first:
        raise ConfigError("--to needs --from", source="backfill", field="to", value=options.to)
    if options.everything:
        return {"everything": True}
    if options.first:
        return {"from": options.first, "to": options.to}
    cursors: dict[str, list[str]] = {}
    for text in options.cursors:
        match = _RANGE.fullmatch(text)
        if match is None or match[1] in cursors:
            why = "is no SHARD:BEGIN:END" if match is None else f"names shard {match[1]} a second time"
            raise ConfigError(f"--cursors: {text!r} {why}", source="backfill", field="cursors", value=text)
        cursors[match[1]] = [match[2], match[3]]
    return {"cursors": cursors}


def _show(options: argparse.Namespace, name: str, found: Estimate) -> None:
    from airflow_provider_slshudi.views.words import backfill

    rows = [(item.shard, item.begin, item.end, len(item)) for item in found.ranges]
    print_table(options.out, f"Backfill of {name}", ("shard", "begin", "end", "log groups"), rows)
    print(backfill(found), file=options.out)


def _start(dag_id: str, run_id: str | None, conf: dict[str, Any]) -> str:
    """Starts a run of the DAG in this machine's Airflow; returns its id."""
    from airflow.api.client import get_current_api_client
    from airflow.providers.common.compat.sdk import AirflowException

    from airflow_provider_slshudi.exceptions import ConfigError
    from airflow_provider_slshudi.handover.names import BACKFILL, act_params
    from airflow_provider_slshudi.storage.owners import this_user

    conf = {**act_params(dag_id, BACKFILL), **conf}
    try:
        started = get_current_api_client().trigger_dag(
            dag_id=dag_id, run_id=run_id, conf=conf, triggering_user_name=this_user()
        )
    except AirflowException as error:
        raise ConfigError(f"Airflow did not start {dag_id}: {error}", source="backfill", value=dag_id) from error
    if not started:
        raise ConfigError(f"Airflow did not start {dag_id}", source="backfill", value=dag_id)
    return str(started["dag_run_id"])
