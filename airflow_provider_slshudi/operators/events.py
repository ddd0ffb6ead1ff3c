"""The assets by which Airflow knows a pipeline's table and its complete partitions, and their events."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias
from airflow.sdk.exceptions import AirflowRuntimeError

from airflow_provider_slshudi import dagfile, settings
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.config.values import scheme_and_place
from airflow_provider_slshudi.hooks.runs import AirflowRuns, this_airflow
from airflow_provider_slshudi.operators.base import only_logged

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_slshudi.ledger.ledger import Ledger
    from airflow_provider_slshudi.ledger.records import Completion, Transaction
    from airflow_provider_slshudi.transaction.context import Work
    from airflow_provider_slshudi.transaction.settle import Settled


def table_asset(pipeline: str | Pipeline) -> Asset:
    """The asset that a pipeline's commits update; a DAG may be scheduled on it.

    `hudi://bucket/path`, or `hudi://localhost/path` for a table on a file system. A name or a file is looked for as a
    factory looks for it.
    """
    described = settings.pipeline(pipeline, dagfile.calling()) if isinstance(pipeline, str) else pipeline
    return _asset(described)


def partitions_asset(pipeline: str | Pipeline) -> Asset:
    """The asset that is updated as partitions of event times become complete; a DAG may be scheduled on it.

    Its URI is that of `table_asset` with `?of=partitions`. From Airflow 3.3 on a DAG with a `PartitionedAssetTimetable`
    of it has a run for each partition, whose value is the run's `partition_key`.
    """
    described = settings.pipeline(pipeline, dagfile.calling()) if isinstance(pipeline, str) else pipeline
    return _asset(described, "_partitions", "?of=partitions")


def partitions_alias(pipeline: Pipeline) -> AssetAlias:
    """The outlet by which that asset has events without a partition's key, where others have keys."""
    return AssetAlias(f"hudi_{pipeline.name}_completed")


def _asset(pipeline: Pipeline, name: str = "", suffix: str = "") -> Asset:
    scheme, place = scheme_and_place(pipeline.table.path)
    authority = "localhost" if scheme == "file" else ""
    return Asset(name=f"hudi_{pipeline.name}{name}", uri=f"hudi://{authority}{place}{suffix}")


def settled_alias(pipeline: Pipeline) -> AssetAlias:
    """The outlet by which settle and recovery update that asset.

    A task that succeeds updates each asset among its outlets, also after no work; through an alias only what it adds.
    """
    return AssetAlias(f"hudi_{pipeline.name}_settled")


_log = logging.getLogger(__name__)
# As many as may be committed while Airflow shows a dead run as running.
_COMMITS = 60
_EVENTS, _MOST_EVENTS = 100, 2_000
# Each has the `extra` of all, and there may be a thousand after a backfill: the next runs tell the others.
_PARTITIONS = 50
_TELLS = "asset event by"
# Airflow has the event a moment after the reservation, with the success of the task that made it.
_RESERVED = timedelta(minutes=10)
# Airflow's old events may have been cleaned away; no DAG waits for a bell that long.
_LONGEST = timedelta(days=7)


def extra_of(committed: Transaction) -> dict[str, Any]:
    """What the event of a committed batch says: the transaction, its kind and instant, its rows and raw bytes, its
    place among the pipeline's commits, and the rows of each partition (None where there are no partitions)."""
    return {
        "transaction": committed.id,
        "kind": committed.kind.value,
        "instant": committed.instant,
        "rows": committed.rows,
        "bytes": committed.bytes,
        "place": committed.place,
        "partitions": None if committed.partitions is None else dict(committed.partitions),
    }


def tell(outlets: Iterable[object], context: Context, work: Work, settled: Iterable[Settled]) -> list[Transaction]:
    """Updates the table's asset, through each outlet that is an alias, for each committed batch without an event.

    These are the `settled` ones; and those whose task died between its commit and its success, with which Airflow would
    have taken the event. Airflow takes the events that are added here with this task's success, so if it dies, the next
    look finds them missing again. Of runs that look at the same time one tells, unless its task stands still for
    minutes in between. Returns the batches that are told.

    Args:
        outlets: the task's.
        context: Airflow's, of the task.
        work: the pipeline's.
        settled: transactions that this task decided.
    """
    aliases = [outlet for outlet in outlets if isinstance(outlet, AssetAlias)]
    settled = [*settled]
    if settled:
        complete_partitions(work)
    if not aliases:
        return []
    asset, airflow = table_asset(work.pipeline), this_airflow()
    transactions = _untold(asset, context, work, settled, airflow)
    mine = [item for item in transactions if _tells(context, work, item, airflow)]
    told_ids: set[str] = set()
    # The run that reserved it may have ended with its event since we looked; if Airflow does not say, we did look.
    with suppress(AirflowRuntimeError, ImportError):
        told_ids = _told_since(asset, mine)
    untold = [item for item in mine if item.id not in told_ids]
    for committed in untold:
        _log.info("asset %s is updated for transaction %s, instant %s", asset.name, committed.id, committed.instant)
        for alias in aliases:
            context["outlet_events"][alias].add(asset, extra=extra_of(committed))
    return untold


def _untold(asset: Asset, context: Context, work: Work, settled: Iterable[Settled], airflow: str) -> list[Transaction]:
    from airflow_provider_slshudi.ledger.records import State
    from airflow_provider_slshudi.transaction.decisions import Decision

    commits = (Decision.RECOMMIT, Decision.MARK_COMMITTED)
    decided = {item.transaction for item in settled if item.decision in commits}
    ledger = work.ledger
    newest = {item.id: item for item in ledger.last(work.pipeline.name, _COMMITS, State.COMMITTED)}
    transactions = [*newest.values(), *(ledger.get(id_) for id_ in decided - newest.keys())]
    since = ledger.now() - _LONGEST
    try:
        # A first look at few events; it misses those between which other tasks update the asset often.
        told_ids = _told(asset, limit=_EVENTS)
        pending_transactions = [
            item
            for item in transactions
            if item.id not in told_ids
            and item.changed > since
            and (item.id in decided or _is_over(context, work, item, airflow))
        ]
        # Looked at again after each run was seen to be over: its own event is there by now.
        told_ids = _told_since(asset, pending_transactions)
    except (AirflowRuntimeError, ImportError) as error:
        _log.warning("Airflow does not tell the events of asset %s: %s", asset.name, error)
        return [item for item in transactions if item.id in decided]
    return sorted((item for item in pending_transactions if item.id not in told_ids), key=lambda item: item.id)


def _told_since(asset: Asset, committed: list[Transaction]) -> set[str]:
    """The transactions that are told by now, of these."""
    from airflow_provider_slshudi.transaction.context import MOST_AHEAD

    return _told(asset, after=min(item.changed for item in committed) - MOST_AHEAD) if committed else set()


def _tells(context: Context, work: Work, committed: Transaction, airflow: str) -> bool:
    """Whether this run is the one that tells: the first that found the batch untold, or the next once that one is over.

    The ledger keeps which one it is, for each Airflow: that has the event only with the success of its task.
    """
    from airflow_provider_slshudi.transaction.context import run_of
    from airflow_provider_slshudi.transaction.dangling import reserve_act

    # Airflow may not give its name for a moment.
    airflow = airflow or run_of(work.ledger, committed).airflow
    name = hashlib.sha256(airflow.encode()).hexdigest()[:16]
    return reserve_act(work, committed.id, f"{_TELLS} {name}", _RESERVED, AirflowRuns(context["ti"]), airflow)


def _is_over(context: Context, work: Work, committed: Transaction, airflow: str) -> bool:
    """Whether no other run will tell the batch: it was taken from the run of this Airflow that planned it, or that run
    has ended or is this very one.

    Another Airflow tells its own.
    """
    from airflow_provider_slshudi.transaction.context import is_of, run_of

    if is_of(work.ledger, committed, work.run):
        return True
    run = run_of(work.ledger, committed)
    if not run.airflow or run.airflow != airflow:
        return False
    return committed.token > 1 or bool(AirflowRuns(context["ti"])(run))


def complete_partitions(work: Work) -> None:
    """Completes the partitions that a commit made complete, for what asks the ledger; the events come later."""
    from airflow_provider_slshudi.downstream.completeness import complete

    if work.pipeline.lateness is not None:
        with only_logged():
            complete(work.ledger, work.pipeline)


def tell_partitions(
    outlets: Sequence[object], context: Context, ledger: Ledger, pipeline: Pipeline
) -> list[Completion]:
    """Updates the asset of complete partitions for all that became complete since its newest event; returns these.

    So an event that was lost with its task, before its success, comes with the next one. The ledger keeps which events
    Airflow is known to have. Where Airflow cannot tell that (3.1), or there is no outlet, it keeps what was announced.

    Args:
        outlets: the task's. An asset has an event for each partition, with its key, where Airflow has such keys; else
            one event for all. An alias has one event without a key, unless an asset had.
        context: Airflow's, of the task.
        ledger: the pipeline's.
        pipeline: the pipeline.
    """
    assets = [outlet for outlet in outlets if isinstance(outlet, Asset)]
    aliases = [outlet for outlet in outlets if isinstance(outlet, AssetAlias)]
    asset = partitions_asset(pipeline)
    # By an asset of one's own events of its own tell how far it is: the pipeline's may have none.
    partitions = _untold_partitions([*assets, *([asset] if aliases else [])], context, ledger, pipeline.name)
    if not partitions:
        return []
    extra = {"pipeline": pipeline.name, **extra_of_partitions(partitions)}
    values = [item.value for item in partitions]
    _log.info("asset %s is updated for the partitions %s", asset.name, ", ".join(values))
    has_keys = True
    for outlet in assets:
        events: Any = context["outlet_events"][outlet]
        events.extra = extra
        has_keys = hasattr(events, "add_partitions")
        if has_keys:
            events.add_partitions(values)
    if has_keys:
        # Airflow starts DAGs that know no keys by events without one alone.
        for alias in aliases:
            context["outlet_events"][alias].add(asset, extra=extra)
    return partitions


def may_be_untold(work: Work) -> bool:
    """Whether a partition is complete of which Airflow is not known to have the event."""
    if work.pipeline.lateness is None:
        return False
    from airflow_provider_slshudi.ledger.records import Feed

    ledger, name = work.ledger, work.pipeline.name
    return ledger.newest(name, Feed.PARTITIONS) > ledger.announced(name, partitions_asset(work.pipeline).name)


def extra_of_partitions(partitions: Sequence[Completion]) -> dict[str, Any]:
    """What the event of partitions says that became complete: the numbers of the first and the last of these
    completions, and of each partition how often it was completed, and its rows."""
    by_value = {item.value: {"times": item.times, "rows": item.rows} for item in partitions}
    return {"first": partitions[0].number, "last": partitions[-1].number, "partitions": by_value}


def _untold_partitions(assets: Sequence[Asset], context: Context, ledger: Ledger, pipeline: str) -> list[Completion]:
    """The oldest completions of which the first asset has no event; without an asset those that no run announced."""
    from airflow_provider_slshudi.ledger.records import Feed

    newest, ti = ledger.newest(pipeline, Feed.PARTITIONS), context["ti"]
    by = assets[0].name if assets else f"{context['dag_run'].dag_id}.{ti.task_id}"
    after, is_known = min(ledger.announced(pipeline, by), newest), bool(assets)
    if assets and after < newest:
        try:
            last = _last_event(assets[0], ledger, pipeline)
        except AirflowRuntimeError as error:
            _log.warning("Airflow does not tell the events of asset %s, the next run asks again: %s", by, error)
            return []
        except ImportError as error:
            _log.info("Airflow cannot tell the events of asset %s: %s", by, error)
            is_known = False
        else:
            if last > after:
                after = last
                ledger.announce(pipeline, by, last)
    since = ledger.now() - _LONGEST
    # Behind an event that is known, those that wait for their turn are told however long that takes.
    untold = [item for item in ledger.completions(pipeline, after, newest) if after or item.at > since][:_PARTITIONS]
    if untold and not is_known:
        ledger.announce(pipeline, by, untold[-1].number)
    return untold


def _last_event(asset: Asset, ledger: Ledger, pipeline: str) -> int:
    """The number of the newest completion of the pipeline of which the asset has an event; 0: of none.

    Several pipelines may have one asset. A ledger that was lost counts anew, so the number has to be of the same
    partition. Raises as `_extras`.
    """
    for most in (_EVENTS, _MOST_EVENTS):
        extras = _extras(asset, most)
        ours = [extra for extra in extras if extra.get("pipeline") == pipeline and "last" in extra]
        for extra in ours:
            number = int(extra["last"])
            times = {value: figures.get("times") for value, figures in extra["partitions"].items()}
            if any(times.get(item.value) == item.times for item in ledger.completions(pipeline, number - 1, number)):
                return number
        if ours or len(extras) < most:
            return 0
    return 0


def _told(asset: Asset, limit: int | None = None, after: datetime | None = None) -> set[str]:
    """The transactions of the asset's newest events, or of those after a time; raises as `_extras`."""
    extras = _extras(asset, limit, after)
    return {str(extra["transaction"]) for extra in extras if "transaction" in extra}


def _extras(asset: Asset, limit: int | None = None, after: datetime | None = None) -> list[dict[str, Any]]:
    """What the asset's newest events say, or those after a time.

    Raises:
        AirflowRuntimeError: Airflow does not tell them.
        ImportError: Airflow 3.1 tells all events that the asset ever had, or none.
    """
    from airflow.sdk.execution_time.context import InletEventsAccessor

    # Not `inlet_events`: an inlet would make the task a reader of its own asset, in Airflow's graphs.
    events = InletEventsAccessor(asset_name=asset.name, asset_uri=asset.uri).ascending(False)
    if limit is not None:
        events = events.limit(limit)
    if after is not None:
        events = events.after(after.isoformat())
    return [event.extra or {} for event in events]
