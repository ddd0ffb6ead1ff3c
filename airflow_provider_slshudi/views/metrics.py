"""Figures of pipelines for monitoring: times as unix seconds, so that an age goes on growing while nothing runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Feed, Past, State
from airflow_provider_slshudi.views.freshness import NEWEST, newest
from airflow_provider_slshudi.views.history import batches
from airflow_provider_slshudi.views.standing import Need, PipelineView, pipelines

MEANING: Mapping[str, str] = {
    "needs_person": "1 while a step has failed in a way that does not pass or has waited for ten minutes, no run has "
    "worked on a live batch for ten minutes, or the last three batches were all given up",
    "seen_timestamp_seconds": "when a run last looked at the service's shards",
    "unread_bytes": "raw bytes that no committed batch has, estimated",
    "unread_log_groups": "log groups that no committed batch has",
    "unread_since_timestamp_seconds": "the first unread log was received then or later; absent if nothing is unread",
    "expires_timestamp_seconds": "when the service drops the first log that is unread, or came since the last look",
    "newest_row_timestamp_seconds": "log time of the newest row of the last ten batches",
    "last_commit_timestamp_seconds": "when the last batch was committed",
    "came_bytes_per_second": "raw bytes that came, over the last hour, estimated",
    "committed_bytes_per_second": "raw bytes that batches committed, over the last hour",
    "live_transactions": "batches that are neither committed nor aborted",
    "heartbeat_timestamp_seconds": "the oldest last heartbeat of a live batch",
    "trouble": "how often a step failed, or waited, since it last succeeded",
    "unnamed_keys": "keys of logs that no column names, as far as batches looked",
    "new_key_timestamp_seconds": "when the newest of these keys was seen for the first time",
    "watermark_timestamp_seconds": "all logs that the service received before it are committed; absent where the file "
    "declares no lateness",
    "consumer_behind": "commits, or complete partitions, that a consumer has not confirmed",
    "consumer_behind_since_timestamp_seconds": "when the ledger heard of the first of these; absent if there is none",
    "consumer_hold_seconds": "for how long cleaning and archival wait for a consumer of commits",
    "last_batch_seconds": "how long a step of the last committed batch took",
    "last_batch_freshness_seconds": "how old the oldest log of the tail's last batch was by its commit, at most",
    "freshness_promised_seconds": "what the pipeline's file promised when that batch was planned",
    "last_batch_rows": "rows of the last committed batch",
    "last_batch_bytes": "raw bytes of the last committed batch",
    "last_batch_files": "files of the last committed batch",
    "last_batch_stored_bytes": "bytes of the files of the last committed batch",
    "last_batch_cpu_seconds": "CPU seconds of the last committed batch, by what took them",
    "last_batch_requests": "requests to the log service of the last committed batch, by who sent them",
    "last_batch_misfits": "logs of the last committed batch that did not fit their columns",
    "last_batch_gap_log_groups": "log groups that the last committed batch records as a gap",
}
"""What each metric means, by its name without `slshudi_`; all are gauges with the label `pipeline`."""


@dataclass(frozen=True)
class Metric:
    """A gauge; `labels` has `pipeline` first."""

    name: str
    labels: Mapping[str, str]
    value: float


def metrics(ledger: Ledger, names: Iterable[str] | None = None) -> list[Metric]:
    """The figures of all pipelines, or of those named; what is not known is left out."""
    chosen = None if names is None else sorted(names)
    return [item for view in pipelines(ledger, chosen) for item in _of(ledger, view)]


def of_one_ledger(looks: Iterable[list[Metric]]) -> list[Metric]:
    """The figures of several ledgers, without pipelines that more than one of them has: no series is there twice."""
    by_ledger = [*looks]
    counts = Counter(name for look in by_ledger for name in {item.labels["pipeline"] for item in look})
    return [item for look in by_ledger for item in look if counts[item.labels["pipeline"]] == 1]


def exposition(found: Iterable[Metric]) -> str:
    """In Prometheus' text format (https://prometheus.io/docs/instrumenting/exposition_formats/)."""
    by_name: dict[str, list[Metric]] = {}
    for item in found:
        by_name.setdefault(item.name, []).append(item)
    lines = []
    for name, meaning in MEANING.items():
        if name in by_name:
            lines += [f"# HELP slshudi_{name} {meaning}", f"# TYPE slshudi_{name} gauge"]
            lines += [f"slshudi_{name}{{{_labels(item.labels)}}} {item.value:.15g}" for item in by_name[name]]
    return "\n".join([*lines, ""])


def _of(ledger: Ledger, view: PipelineView) -> Iterator[Metric]:
    pipeline = {"pipeline": view.name}
    for name, value in _standing(view).items():
        if value is not None:
            yield Metric(name, pipeline, float(value))
    for trouble in view.troubles:
        labels = {"dag_id": trouble.dag_id, "step": trouble.step, "error": trouble.error}
        yield Metric("trouble", pipeline | labels | {"waits": str(trouble.waits).lower()}, float(trouble.times))
    yield from _downstream(ledger, pipeline)
    past = ledger.history(view.name, NEWEST)
    yield from _fresh(past, pipeline)
    last = next((item for item in past if item.transaction.state is State.COMMITTED), None)
    if last is not None:
        yield from _batch(ledger, pipeline, last)


def _downstream(ledger: Ledger, pipeline: dict[str, str]) -> Iterator[Metric]:
    name = pipeline["pipeline"]
    watermark, _ = ledger.progress(name)
    if watermark is not None:
        yield Metric("watermark_timestamp_seconds", pipeline, float(watermark))
    for item in ledger.lags(name):
        labels = pipeline | {"consumer": item.consumer.name, "of": item.consumer.of.value}
        yield Metric("consumer_behind", labels, float(item.behind))
        if item.consumer.of is Feed.COMMITS:
            yield Metric("consumer_hold_seconds", labels, float(item.consumer.hold))
        if item.since is not None:
            yield Metric("consumer_behind_since_timestamp_seconds", labels, item.since.timestamp())


def _fresh(past: Sequence[Past], pipeline: dict[str, str]) -> Iterator[Metric]:
    freshness = newest(past)
    if freshness is not None:
        yield Metric("last_batch_freshness_seconds", pipeline, freshness.seconds)
        if freshness.promised is not None:
            yield Metric("freshness_promised_seconds", pipeline, freshness.promised)


def _standing(view: PipelineView) -> dict[str, float | None]:
    lag, committed = view.lag, view.committed
    figures: dict[str, float | None] = {"needs_person": float(view.need is Need.LOOK)}
    if lag is not None:
        figures |= {"seen_timestamp_seconds": lag.seen.timestamp()}
        figures |= {"unread_bytes": lag.bytes, "unread_log_groups": lag.groups}
        if lag.groups and lag.seconds is not None:
            figures["unread_since_timestamp_seconds"] = _back(view.now, lag.seconds)
        if lag.expires is not None:
            figures["expires_timestamp_seconds"] = _back(view.now, -lag.expires)
    figures["newest_row_timestamp_seconds"] = view.fresh
    figures["last_commit_timestamp_seconds"] = None if committed is None else committed.changed.timestamp()
    figures |= {"came_bytes_per_second": view.rates.came, "committed_bytes_per_second": view.rates.committed}
    figures["live_transactions"] = len(view.live)
    figures["heartbeat_timestamp_seconds"] = min((live.heartbeat.timestamp() for live in view.live), default=None)
    if view.unnamed is not None:
        figures |= {"unnamed_keys": view.unnamed.keys, "new_key_timestamp_seconds": view.unnamed.newest.timestamp()}
    return figures


def _batch(ledger: Ledger, pipeline: dict[str, str], last: Past) -> Iterator[Metric]:
    (batch,) = batches([last])
    for step in batch.steps:
        yield Metric("last_batch_seconds", pipeline | {"step": step.name}, step.seconds)
    yield Metric("last_batch_rows", pipeline, float(last.transaction.rows))
    yield Metric("last_batch_bytes", pipeline, float(last.transaction.bytes))
    if batch.files is not None:
        yield Metric("last_batch_files", pipeline, float(batch.files))
    if batch.stored is not None:
        yield Metric("last_batch_stored_bytes", pipeline, float(batch.stored))
    for part, seconds in batch.cost.cpu.items():
        if seconds is not None:
            yield Metric("last_batch_cpu_seconds", pipeline | {"of": part}, seconds)
    for part, requests in batch.cost.asked.items():
        if requests is not None:
            yield Metric("last_batch_requests", pipeline | {"of": part}, float(requests))
    yield Metric("last_batch_misfits", pipeline, float(batch.unfit))
    gaps = [item for item in ledger.ranges(last.transaction.id) if item.gap]
    yield Metric("last_batch_gap_log_groups", pipeline, float(sum(map(len, gaps))))


def _back(now: datetime, seconds: float) -> float:
    return now.timestamp() - seconds


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
