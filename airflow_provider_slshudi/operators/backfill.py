"""Backfill: a batch of the ranges that a DAG run's params name, and the next run if ranges are left."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from pydantic import AwareDatetime, TypeAdapter, ValidationError

from airflow_provider_slshudi import settings
from airflow_provider_slshudi.exceptions import ConfigError, CursorError
from airflow_provider_slshudi.handover.names import BACKFILL, DRY_RUN, PARAMS_SOURCE, PART, part_of
from airflow_provider_slshudi.operators.base import (
    PipelineTask,
    failure_of,
    first_run,
    only_logged,
    refuse_unknown_params,
    who_asked,
)
from airflow_provider_slshudi.operators.batch import SlsHudiPlanOperator
from airflow_provider_slshudi.plugins.links import PipelineLink
from airflow_provider_slshudi.settings import CONNECTIONS, Connections

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_slshudi.config.pipeline import Pipeline
    from airflow_provider_slshudi.ledger.records import Transaction
    from airflow_provider_slshudi.transaction.context import Work
    from airflow_provider_slshudi.transaction.plan import BackfillRequest

PARAMS = ("cursors", "from", "to", "everything", "dry_run")
# Only one spelling per shard: of `0` and `00` one would be forgotten.
_SHARD = re.compile("0|[1-9][0-9]{0,9}")
_TIME: TypeAdapter[datetime] = TypeAdapter(AwareDatetime)


def backfill_request(params: Mapping[str, Any]) -> BackfillRequest:
    """The request in the params `cursors` ({shard: [begin, end]}), `from` and `to` (receive times, the end excluded),
    or `everything`; cursors and `everything` mean what the service still holds of these cursors.

    Raises:
        ConfigError: none or several are given, or one is malformed.
    """
    from airflow_provider_slshudi.transaction.plan import BackfillRequest

    cursors, first, last, everything = (params.get(name) for name in ("cursors", "from", "to", "everything"))
    if everything:
        if first or last:
            raise _wrong("everything", everything, "give it without `from` and `to`: it means all that is unread")
        return BackfillRequest(cursors=_cursors(cursors) if cursors else None, everything=True)
    if cursors and (first or last):
        raise _wrong("cursors", cursors, "give either `cursors` or `from` and `to`, not both")
    if cursors:
        return BackfillRequest(cursors=_cursors(cursors))
    if not (first and last):
        raise _wrong("from", first, "give `cursors` ({shard: [begin, end]}), both `from` and `to`, or `everything`")
    # The service finds cursors by whole seconds: these hold all of the span.
    span = math.floor(_seconds("from", first)), math.ceil(_seconds("to", last))
    if span[0] >= span[1]:
        raise _wrong("from", first, f"is not before `to` ({last})")
    return BackfillRequest(span=span)


def _known_params(context: Context) -> Mapping[str, Any]:
    """The DAG's params.

    Raises:
        ConfigError: the run was given a param that neither the DAG nor its tasks know, as a rule a misspelt one.
    """
    refuse_unknown_params(context, PARAMS)
    return context["params"]


def _cursors(given: Any) -> dict[int, tuple[int, int]]:
    if not isinstance(given, Mapping):
        raise _wrong("cursors", given, "expected {shard: [begin, end]}")
    cursors = {}
    for shard, pair in given.items():
        field = f"cursors.{shard}"
        if not _SHARD.fullmatch(str(shard)):
            raise _wrong(field, shard, "a shard is a number, written without zeros before it")
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise _wrong(field, pair, "expected [begin, end]")
        begin, end = (_cursor(field, value) for value in pair)
        if begin >= end:
            raise _wrong(field, pair, "its begin is not before its end")
        cursors[int(shard)] = (begin, end)
    return cursors


def _cursor(field: str, value: Any) -> int:
    from airflow_provider_slshudi.sls.cursors import parse

    if not isinstance(value, str):
        raise _wrong(field, value, "expected a cursor in quotes: browsers round numbers of this size")
    try:
        return parse(value)
    except CursorError as error:
        raise _wrong(field, value, str(error)) from error


def _seconds(field: str, value: Any) -> float:
    try:
        return _TIME.validate_python(value).timestamp()
    except ValidationError:
        raise _wrong(field, value, "expected a time with its zone, like 2026-01-31T08:00:00+08:00") from None


def _wrong(field: str, value: object, reason: str) -> ConfigError:
    return ConfigError(f"backfill: {field}: {value!r}: {reason}", source=PARAMS_SOURCE, field=field, value=value)


class SlsHudiBackfillPlanOperator(SlsHudiPlanOperator):
    """Pins the next batch of the unread ranges that the run's params `cursors`, or `from` and `to`, name.

    A span that reaches into the future ends with the newest log that the service holds now. So the operator returns,
    besides the result of `SlsHudiPlanOperator`, the `cursors` of the span, for the runs that read the rest, and whether
    they stand for `everything` that the service holds: a begin that was not named leaves out what expires meanwhile.

    Args:
        pipeline: a pipeline's name or file, or a `Pipeline`; connections as in `PipelineOperator`.
        cursors: `{shard: [begin, end]}` with the ends excluded, where the run's params name nothing; templated.
        from_: first receive time, ISO 8601 with its zone, likewise.
        to: receive time that is not read any more, likewise.
        everything: whether all that the service holds and no batch has read is meant, likewise; no template.
    """

    template_fields = (*SlsHudiPlanOperator.template_fields, "cursors", "from_", "to")

    def __init__(
        self,
        *,
        cursors: Mapping[str, Sequence[str]] | None = None,
        from_: str | None = None,
        to: str | None = None,
        everything: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.cursors, self.from_, self.to, self.everything = cursors, from_, to, everything

    def in_trouble(self, context: Context, error: BaseException, waits: bool, step: str = "") -> None:
        """Keeps why a request failed for the person who made it. What is wrong in the request or in the pipeline's file
        is no trouble of the backfill: the former is over with it, and the latter stops the tail as well.

        Args:
            context: Airflow's, of the task.
            error: why the step failed.
            waits: whether the step tries again by itself.
            step: the step's name; empty: the task's own.
        """
        if not isinstance(error, ConfigError):
            super().in_trouble(context, error, waits, step)
        if not waits:
            with only_logged():
                self._keep_failure(context, error)

    def _keep_failure(self, context: Context, error: BaseException) -> None:
        from airflow_provider_slshudi.hooks.ledger import LedgerHook

        work, params, run = self._work, self._asked(context["params"]), first_run(context)
        name = settings.stem(self.pipeline) if work is None else work.pipeline.name
        ledger = LedgerHook(self.connections.ledger).ledger() if work is None else work.ledger
        act = DRY_RUN if params.get("dry_run") else BACKFILL
        request = ", ".join(f"{param} {params[param]}" for param in PARAMS if params.get(param)) or "nothing was named"
        ledger.ask(name, act, who_asked(context), request, run, {})
        ledger.answer(name, act, run, ": ".join(failure_of(error)))

    def _asked(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """The run's params, with the operator's arguments where they name nothing to read."""
        if any(params.get(name) for name in ("cursors", "from", "to", "everything")):
            return params
        own = {"cursors": self.cursors, "from": self.from_, "to": self.to, "everything": self.everything}
        return {**params, **own}

    def plan(self, work: Work, context: Context) -> tuple[Transaction | None, dict[str, Any]]:
        """The transaction, None if all of the request is covered or reserved; and the request's cursors."""
        from airflow_provider_slshudi.transaction.plan import backfill, pinned
        from airflow_provider_slshudi.views import progress

        params = self._asked(_known_params(context))
        raw_request = backfill_request(params)
        if params.get("dry_run"):
            raise AirflowSkipException(_dry_run(work, raw_request, context, _said(params)))
        request = pinned(work, raw_request)
        if not request.cursors:
            if raw_request.span is not None and raw_request.span[0] > time.time():
                raise _wrong("from", params["from"], "is yet to come: the service holds nothing of it")
            return None, {}
        if raw_request.span is not None and raw_request.span[1] > time.time():
            self.log.info("`to` is yet to come: the backfill ends with what the service holds now")
        cursors = {str(shard): [str(begin), str(end)] for shard, (begin, end) in request.cursors.items()}
        planned, first = backfill(work, request), first_run(context)
        if planned is None:
            progress.ended(work, first)
        else:
            progress.began(work, who_asked(context), _said(params), first, request.cursors)
        return planned, {"cursors": cursors, "everything": not request.is_named}


def _dry_run(work: Work, request: BackfillRequest, context: Context, asked: str) -> str:
    """What the backfill would read, in a sentence, which the pipeline's page shows beside what was asked."""
    from airflow_provider_slshudi.views.progress import estimate_backfill
    from airflow_provider_slshudi.views.words import backfill

    name, who = work.pipeline.name, who_asked(context)
    with work.ledger.audited(name, DRY_RUN, who, asked, str(work.run)) as result:
        said = backfill(estimate_backfill(work, request))
        result.append(said)
    return said


def _said(params: Mapping[str, Any]) -> str:
    """What was asked for, as a person reads it."""
    if params.get("everything"):
        return "everything"
    if params.get("cursors"):
        return ", ".join(f"shard {shard} from {begin} to {end}" for shard, (begin, end) in params["cursors"].items())
    return f"received from {params['from']} to {params['to']}"


class SlsHudiBackfillRestOperator(PipelineTask, TriggerDagRunOperator):
    """Triggers this DAG once more if the request needs another batch; skips if it does not.

    The next run's id follows from this one's, so that a retry makes no second run.

    Args:
        pipeline: a pipeline's name or file, or a `Pipeline`; connections as in `PipelineOperator`.
        planned: the result of the backfill's plan operator.
    """

    template_fields = ("pipeline", *CONNECTIONS, "planned", *TriggerDagRunOperator.template_fields)
    operator_extra_links = [PipelineLink(), *TriggerDagRunOperator.operator_extra_links]  # noqa: RUF012 - Airflow's type

    def __init__(
        self,
        *,
        pipeline: str | Pipeline,
        planned: Any,
        sls_conn_id: str | None = None,
        spark_conn_id: str | None = None,
        ledger_conn_id: str | None = None,
        storage_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        ours = {"trigger_dag_id": "{{ dag.dag_id }}", "logical_date": None, "skip_when_already_exists": True}
        super().__init__(**{**kwargs, **ours})
        self._connect(Connections(sls_conn_id, spark_conn_id, ledger_conn_id, storage_conn_id))
        self.pipeline, self.planned = pipeline, planned

    def execute(self, context: Context) -> None:
        """Looks for unread ranges, and triggers."""
        from airflow_provider_slshudi.transaction.plan import preview_backfill
        from airflow_provider_slshudi.views import progress

        # The cursors that `to` stood for when it was resolved: with all that has come since it would never end.
        params = {"cursors": self.planned["cursors"], "everything": self.planned["everything"]}
        with self.told(context):
            work = self.work(context)
            unread_ranges = preview_backfill(work, backfill_request(params))
        if not unread_ranges:
            progress.ended(work, first_run(context))
            raise AirflowSkipException("all of the backfill is covered or reserved")
        self.log.info("left of the backfill: %s", ", ".join(map(str, unread_ranges)))
        first, part = part_of(context["dag_run"].run_id)
        number = part + 1
        # Where one DAG does more than backfills, its runs say what they are for.
        act = {"act": BACKFILL} if "act" in context["params"] else {}
        self.trigger_run_id, self.conf = f"{first}{PART}{number}", {**act, **params}
        self.note = f"Part {number} of backfill {first}: {len(unread_ranges)} ranges were left"
        super().execute(context)
