"""Measures how fast this machine decodes the demo's own logs, with the installed decoder."""

from __future__ import annotations

import time
from dataclasses import dataclass

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.native import native
from airflow_provider_slshudi.rows.maker import RowSpec
from airflow_provider_slshudi.sls.decode import decode
from airflow_provider_slshudi.sls.service import LogService

_SECONDS = 1.0


@dataclass(frozen=True)
class Decoding:
    """MB of raw protobuf that one core turns into Arrow in a second, and whether slshudi-native did."""

    mb_s: float
    by_native: bool


def measure(service: LogService, pipeline: Pipeline) -> Decoding:
    """Decodes the first pull of the fullest shard again and again, for a second of CPU."""
    windows = [(shard.id, service.begin(shard.id), service.end(shard.id)) for shard in service.shards()]
    shard, begin, end = max(windows, key=lambda window: window[2] - window[1])
    pull = service.pull(shard, begin, end)
    keys = RowSpec.of(pipeline).keys
    times, start = 0, time.thread_time()
    while (seconds := time.thread_time() - start) < _SECONDS:
        decode(pull.body, shard, pull.begin, keys, pull.groups)
        times += 1
    return Decoding(times * len(pull.body) / 1e6 / seconds, native is not None)
