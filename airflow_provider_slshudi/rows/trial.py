"""What becomes of single logs: columns, masks, misfits, or that the pipeline's condition leaves them out."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import ValueMisfit
from airflow_provider_slshudi.rows.maker import RowMaker, RowSpec
from airflow_provider_slshudi.rows.partitions import partition_path
from airflow_provider_slshudi.shaping.masks import HashKey, Masks
from airflow_provider_slshudi.sls.columns import META, REST
from airflow_provider_slshudi.system.secrets import Secret

ROW, FILTERED, QUARANTINED, DROPPED, FAILS = "row", "filtered", "quarantine", "dropped", "fails the batch"


@dataclass(frozen=True)
class Fate:
    """What becomes of a log.

    Attributes:
        becomes: `row`, `filtered`, `quarantine`, `dropped` (no value for a record key), or `fails the batch`.
        columns: the row's values by column; none unless it becomes one.
        partition: the path of the row's partition; empty without one.
        table: the name of the row's table, the pipeline's or a route's; empty unless it becomes one.
        misfits: a sentence for each value that does not fit.
    """

    becomes: str
    columns: dict[str, Any] = field(default_factory=dict)
    partition: str = ""
    misfits: list[str] = field(default_factory=list)
    table: str = ""


def fates(pipeline: Pipeline, logs: Iterable[Mapping[str, Any]]) -> list[Fate]:
    """What becomes of each log by the pipeline's file; hashes are by a key of this call alone.

    Args:
        pipeline: the file's.
        logs: each a value by key; one that is no text counts as its JSON. `__topic__`, `__source__` and `__time__`
            (unix seconds, now by default) are the log's own, and `__tag__:NAME` a tag.
    """
    spec = replace(RowSpec.of(pipeline, int(time.time())), shows=True)
    masks = Masks(spec.masks, HashKey(pipeline.mask_key or "", Secret("0" * 32))) if spec.masks else None
    tables = [pipeline.table.name, *(route.name for route in pipeline.routes)]
    return [_fate(spec, masks, table_of([log], spec.keys), tables) for log in logs]


def table_of(logs: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> pa.Table:
    """Logs as `sls.decode` gives them with these keys; cursors count from 0, one log to a log group."""
    texts = [{key: _bytes(value) for key, value in log.items()} for log in logs]
    now = int(time.time())
    columns: dict[str, Any] = {
        "__cursor__": range(len(logs)),
        "__index__": [0] * len(logs),
        "__time__": [int(log.get("__time__", now)) for log in logs],
        "__time_ns_part__": [None] * len(logs),
        "__topic__": [text.get("__topic__") or b"" for text in texts],
        "__source__": [text.get("__source__") or b"" for text in texts],
    }
    named = [key for key in keys if key not in META.names]
    columns |= {key: [text.get(key) for text in texts] for key in named}
    rest = [[(k.encode(), v) for k, v in text.items() if k not in named and k not in META.names] for text in texts]
    fields = [*META, *(pa.field(key, pa.binary()) for key in named), REST]
    return pa.table([pa.array([*columns.get(item.name, rest)], item.type) for item in fields], pa.schema(fields))


def _bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()


def _fate(spec: RowSpec, masks: Masks | None, logs: pa.Table, tables: Sequence[str]) -> Fate:
    maker = RowMaker(spec, masks)
    try:
        rows = maker.rows(logs, 0)
    except ValueMisfit as misfit:
        return Fate(FAILS, misfits=[str(misfit)])
    # Of one log only the column and what is wrong is of interest.
    misfits = [example.replace(" of log 0-0-0", "", 1) for example in maker.examples]
    if rows.filtered:
        return Fate(FILTERED)
    if rows.unfit is not None:
        return Fate(QUARANTINED, misfits=misfits)
    if not rows.data.num_rows:
        return Fate(DROPPED, misfits=misfits)
    (columns,) = rows.data.to_pylist()
    path = ""
    if rows.partitions is not None and spec.partition is not None:
        path = partition_path(spec.partition.name, rows.partitions[0].as_py())
    return Fate(ROW, columns, path, misfits, tables[0 if rows.tables is None else int(rows.tables[0])])
