"""The routes of the pages. Each asks who looks, and shows nothing of pipelines whose DAGs they may not read."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response, status
from fastapi.responses import HTMLResponse

from airflow_provider_slshudi.exceptions import LedgerError, SlsHudiError
from airflow_provider_slshudi.handover.names import BACKFILL, DRY_RUN, VERIFY, Act, act_params, serving
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import GONE, LIVE, SILENT_AFTER, Kind
from airflow_provider_slshudi.planning.windows import estimate
from airflow_provider_slshudi.plugins.access import (
    SessionDep,
    Viewer,
    ViewerDep,
    is_paused,
    this_airflow,
)
from airflow_provider_slshudi.plugins.render import STATIC, page
from airflow_provider_slshudi.views import calendar, findings, history, shards, standing
from airflow_provider_slshudi.views import trend as trends
from airflow_provider_slshudi.views.cost import ENOUGH, TASKS, costs
from airflow_provider_slshudi.views.freshness import late
from airflow_provider_slshudi.views.metrics import exposition, metrics, of_one_ledger
from airflow_provider_slshudi.views.progress import progress, refused
from airflow_provider_slshudi.views.words import Text

BATCHES = 60
"""Batches on a pipeline's page; older ones are a link away."""
MISSING = 500
"""Unread ranges to tick on the page of backfills."""
KEYS = 100
"""Keys that no column names, on a pipeline's page."""
DEEDS = 20
"""What people had done, on a pipeline's page."""
SPAN = "24h"
"""Which of `trend.WINDOWS` the charts of a pipeline show at first."""


def create_app() -> FastAPI:
    """The application that the plugin mounts."""
    # Without FastAPI's own pages, which ask for no login.
    app = FastAPI(title="slshudi", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_api_route("/", fleet, response_class=HTMLResponse)
    app.add_api_route("/pipelines/{name}", pipeline, response_class=HTMLResponse)
    app.add_api_route("/pipelines/{name}/backfill", backfill, response_class=HTMLResponse)
    app.add_api_route("/pipelines/{name}/acts/{act}", act_of, response_class=HTMLResponse)
    app.add_api_route("/transactions/{id_}", transaction, response_class=HTMLResponse)
    app.add_api_route("/dags/{dag_id}", of_dag, response_class=HTMLResponse)
    app.add_api_route("/dags/{dag_id}/runs/{run_id:path}", of_run, response_class=HTMLResponse)
    app.add_api_route("/metrics", figures)
    app.add_api_route("/static/{name}", static)
    app.add_exception_handler(SlsHudiError, _failed)
    return app


def fleet(request: Request, viewer: ViewerDep) -> HTMLResponse:
    """All pipelines; the one that needs a person most comes first."""
    return _fleet(request, viewer, sorted(viewer.dags), viewer.waiting)


def pipeline(
    request: Request,
    viewer: ViewerDep,
    name: str,
    before: str | None = None,
    span: str = SPAN,
    lines: int | None = None,
    until: int | None = None,
    partition: str = "",
) -> HTMLResponse:
    """One pipeline: shards, coverage, partitions, consumers, batches, values that did not fit.

    Args:
        request: the browser's.
        viewer: the user, and what the user may see.
        name: the pipeline's.
        before: the id of a transaction: show older ones.
        span: which of `trend.WINDOWS` the charts show; the usual one in place of another text.
        lines: how many lines the calendar of partitions has.
        until: it shows partitions that begin before this, in unix seconds; None: before now.
        partition: the value of the one of them that is shown by itself; empty for none.
    """
    return _pipeline(request, viewer, name, before, span=span, partitions=(lines, until, partition))


def backfill(request: Request, viewer: ViewerDep, session: SessionDep, name: str) -> HTMLResponse:
    """How far backfills are, what no batch has read, and the forms that ask for it.

    Args:
        request: the browser's.
        viewer: the user, and what the user may see.
        session: of Airflow's database.
        name: the pipeline's.
    """
    ledger, dags = viewer.require(name)
    dag = serving(name, BACKFILL, dags, viewer.gone_dags)
    standings = ledger.standings(1, ledger.now(), [name])
    # What a gone shard had cannot be read any more.
    readable_shards = [item for item in shards.shards(standings[0]) if item.shard.status != GONE] if standings else []
    missing = [item for shard in readable_shards for item in shard.missing]
    density = standings[0].density if standings else {}
    past = [item for item in ledger.history(name, BATCHES) if item.transaction.kind is Kind.BACKFILL]
    shown: dict[str, Any] = {
        "source": standings[0].pipeline.source if standings else "",
        "missing": [(item, estimate([item], density) if density else None) for item in missing[:MISSING]],
        "more": max(len(missing) - MISSING, 0),
        "dag": dag,
        "paused": dag is not None and is_paused(session, dag),
        "progress": progress(ledger, name),
        "deeds": [*refused(ledger, name), *ledger.audit_entries(name, DEEDS, DRY_RUN)],
        "batches": history.batches(past),
    }
    return page(request, "backfill.html", name=name, dags=dags, **shown)


def act_of(request: Request, viewer: ViewerDep, name: str, act: str, transaction: str | None = None) -> HTMLResponse:
    """What an act will do to a pipeline, what it will find, and the form that asks for it.

    Args:
        request: the browser's.
        viewer: the user, and what the user may see.
        name: the pipeline's.
        act: an `Act`'s name.
        transaction: the id that the act is about.
    """
    ledger, dags = viewer.require(name)
    chosen = next((item for item in Act if item.value == act), None)
    if chosen is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, "There is no such act.")
    live = ledger.live(name)
    named = next((item for item in live if item.id == transaction), None)
    shown: dict[str, Any] = {
        "act": chosen,
        "live": live if named is None else [named],
        "named": named,
        "gone": transaction if transaction and named is None else None,
        "ranges": {item.id: ledger.ranges(item.id) for item in live},
        "holdings": ledger.holdings(name),
        "committed": ledger.latest_committed(name),
        "dag": serving(name, chosen.role, dags, viewer.gone_dags),
        "now": ledger.now(),
    }
    return page(request, "act.html", name=name, dags=dags, **shown)


def transaction(request: Request, viewer: ViewerDep, id_: str) -> HTMLResponse:
    """One transaction: ranges, steps, decisions, history."""
    return _transaction(request, viewer, id_)


def of_dag(request: Request, viewer: ViewerDep, dag_id: str) -> HTMLResponse:
    """The page of a DAG's pipeline; of a fleet's DAG all its pipelines."""
    names = viewer.pipelines_of(dag_id)
    return _of_names(request, viewer, dag_id, names)


def of_run(request: Request, viewer: ViewerDep, dag_id: str, run_id: str) -> HTMLResponse:
    """The page of the transaction that a DAG run made, or of the run's pipeline; of a fleet's run all its pipelines.

    Args:
        request: the browser's.
        viewer: the user, and what the user may see.
        dag_id: the run's DAG.
        run_id: the run.
    """
    names = viewer.pipelines_of(dag_id)
    if len(names) != 1:
        return _of_names(request, viewer, dag_id, names)
    ledger, _ = viewer.require(names[0])
    batch = ledger.of_run(names[0], dag_id, run_id, this_airflow())
    if batch is None:
        return _of_names(request, viewer, dag_id, names, Text("Run {run} made no batch.", run=run_id))
    return _transaction(request, viewer, batch.id)


def figures(viewer: ViewerDep) -> Response:
    """The figures of the pipelines that one may see, for Prometheus."""
    text = exposition(of_one_ledger(metrics(ledger, names) for ledger, names in viewer.ledgers.items()))
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def static(viewer: ViewerDep, name: str) -> Response:
    """Style sheet and script."""
    if name not in STATIC:
        raise HTTPException(status.HTTP_404_NOT_FOUND, "There is no such file.")
    kind = "text/css" if name.endswith(".css") else "text/javascript"
    return Response(STATIC[name].read_bytes(), media_type=kind)


def _of_names(
    request: Request, viewer: Viewer, dag_id: str, names: list[str], remark: str | None = None
) -> HTMLResponse:
    if not names:
        return page(request, "none.html", what=f"DAG {dag_id}")
    if len(names) > 1:
        return _fleet(request, viewer, names, [])
    return _pipeline(request, viewer, names[0], None, remark)


def _fleet(request: Request, viewer: Viewer, names: list[str], waiting: list[str]) -> HTMLResponse:
    by_ledger = ((ledger, sorted({*there} & {*names})) for ledger, there in viewer.ledgers.items())
    views = (view for ledger, chosen in by_ledger for view in standing.pipelines(ledger, chosen))
    shown = standing.by_need(map(viewer.as_airflow_has_it, views))
    unshown = sorted({*names, *waiting} - {view.name for view in shown})
    broken = {name for name in unshown if viewer.broken.intersection(viewer.readers(name))}
    return page(request, "fleet.html", pipelines=shown, waiting=unshown, silent=viewer.silent_ledgers, broken=broken)


def _pipeline(
    request: Request,
    viewer: Viewer,
    name: str,
    before: str | None,
    said: str | None = None,
    span: str = SPAN,
    partitions: tuple[int | None, int | None, str] = (None, None, ""),
) -> HTMLResponse:
    ledger, dags = viewer.require(name)
    standings = ledger.standings(standing.NEWEST, ledger.now() - standing.WINDOW, [name], standing.ACTS)
    if not standings:
        return page(request, "none.html", what=Text("Pipeline {name}", name=name), dags=dags)
    past = ledger.history(name, BATCHES, before)
    batches = history.batches(past)
    shown: dict[str, Any] = {
        "view": viewer.as_airflow_has_it(standing.view_of(standings[0])),
        "shards": shards.shards(standings[0]),
        "batches": batches,
        "costs": costs(batches),
        "enough": ENOUGH,
        "late": late(ledger, past) if before is None else "",
        "misfits": history.misfits(past),
        "older": past[-1].transaction.id if len(past) == BATCHES else None,
    }
    unnamed = findings.unnamed(ledger, name)
    shown |= {"unnamed": unnamed[:KEYS], "more_keys": len(unnamed[KEYS:]), "values": viewer.sees_values(name)}
    roles = {role: serving(name, role, dags, viewer.gone_dags) for role in ("tail", VERIFY)}
    if (proof := roles[VERIFY]) and act_params(proof, VERIFY) and not viewer.has_task(proof, VERIFY):
        # It is of a table with upserts, which cannot be proven.
        roles[VERIFY] = None
    window = span if span in trends.WINDOWS else SPAN
    shown |= {"trend": trends.trend(ledger, name, trends.WINDOWS[window]), "freshness": trends.freshness_trend(batches)}
    shown |= {"window": window, "windows": list(trends.WINDOWS)}
    shown |= _downstream(ledger, name, *partitions)
    tail = roles["tail"]
    shown |= {"paused": tail in viewer.paused, "next_run": viewer.next_run(tail) if tail else None}
    acts = ledger.audit_entries(name, DEEDS)
    shown |= {"dags": dags, "roles": roles, "said": said, "before": before, "deeds": acts}
    shown |= {"without_alerts": name in viewer.without_alerts}
    shown |= {"acts": (Act.REPLAY, Act.REBUILD_METADATA), "dismiss": Act.DISMISS}
    return page(request, "pipeline.html", **shown)


def _downstream(ledger: Ledger, name: str, lines: int | None, until: int | None, partition: str) -> dict[str, Any]:
    """What a pipeline's page says of partitions and consumers."""
    begun = int(ledger.now().timestamp()) + 1
    before = begun if until is None else min(max(until, 0), begun)
    watermark = calendar.watermark(ledger, name)
    partitions = None if watermark is None else calendar.calendar(ledger, name, before, lines)
    picked = None if partitions is None else calendar.partition(ledger, name, partitions, partition)
    consumers = ledger.lags(name)
    airflow = this_airflow() if any(item.consumer.taken for item in consumers) else ""
    shown = {"watermark": watermark, "calendar": partitions, "until": until, "picked": picked}
    return {**shown, "states": calendar.STATES, "consumers": consumers, "own_airflow": airflow}


def _transaction(request: Request, viewer: Viewer, id_: str) -> HTMLResponse:
    ledger, dags = viewer.require_transaction(id_)
    view = history.transaction(ledger, id_)
    live = view.batch.transaction.state in LIVE
    shown: dict[str, Any] = {"view": view, "live": live, "acts": (Act.RECOVER, Act.ABANDON)}
    name = view.batch.transaction.pipeline
    shown["source"] = next(pipeline.source for pipeline in ledger.pipelines() if pipeline.name == name)
    now = ledger.now()
    shown |= {"costs": costs([view.batch]), "enough": ENOUGH, "tasks": TASKS, "now": now}
    shown |= {"silent": now - view.batch.transaction.heartbeat > SILENT_AFTER}
    return page(request, "transaction.html", dags=dags, **shown)


async def _failed(request: Request, error: Exception) -> HTMLResponse:
    """The page of an error: mostly, the ledger's database does not answer."""
    of_ledger = isinstance(error, LedgerError)
    what = Text("The ledger could not be read") if of_ledger else Text("This page could not be made")
    code = status.HTTP_503_SERVICE_UNAVAILABLE
    return page(request, "failed.html", code, what=what, error=type(error).__name__, message=str(error))
