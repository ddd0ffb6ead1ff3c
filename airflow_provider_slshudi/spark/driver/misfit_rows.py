"""Logs that do not fit, on their way into the quarantine.

The tasks that read the logs leave misfits in files beside the order: the job knows only at the end whether there are
any, and the quarantine's instant must exist before its files. A second, small stage then writes the base files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_provider_slshudi.config.arrow import arrow_type
from airflow_provider_slshudi.handover import fencing
from airflow_provider_slshudi.handover.batch_files import Attempt
from airflow_provider_slshudi.hudi.beside import COLUMNS
from airflow_provider_slshudi.hudi.files.basefile import BaseFileWriter
from airflow_provider_slshudi.rows.keys import row_keys
from airflow_provider_slshudi.rows.misfits import Unfit
from airflow_provider_slshudi.shaping.inputs import flat
from airflow_provider_slshudi.sls.columns import META, REST
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.system.points import Point, reach

_KEY = "_key"
_PAIRS = "contents"


@dataclass(frozen=True)
class Origin:
    """The facts that all logs of a batch share; `planned` in unix seconds."""

    pipeline: str
    transaction: str
    planned: int


class Staging:
    """The file of one task's logs that do not fit; a context manager. Without such logs it makes no file.

    Attributes:
        path: the file, within the main table's storage; None if there is none.
    """

    def __init__(self, storage: Storage, instant: str, write_token: str, origin: Origin) -> None:
        self._storage, self._origin = storage, origin
        self._name = f"{fencing.folder(instant)}/misfits-{write_token}.arrows"
        self._stream: Any = None
        self._writer: Any = None
        self.path: str | None = None

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, *error: object) -> None:
        if self._writer is not None:
            try:
                self._writer.close()
            finally:
                self._storage.complete(self._name, self._stream)
            reach(Point.APPEND_TASK_STAGED)

    def add(self, logs: pa.Table, unfit: Unfit, shard: int) -> None:
        """Adds the logs of a pull that `unfit` names, decoded without keys, so that all is in `__rest__`."""
        rows = _rows(logs, unfit.why, shard, self._origin)
        rows = rows.append_column(_KEY, row_keys(shard, flat(rows["cursor"]), flat(rows["log_index"])))
        if self._writer is None:
            self.path = self._name
            self._stream = self._storage.create(self._name)
            self._writer = pa.ipc.new_stream(self._stream, rows.schema)
        self._writer.write_table(rows)


@dataclass(frozen=True)
class QuarantineTask:
    """Writes staged logs into the quarantine's base files; travels to the executors.

    The attempt is on the main table's instant, `storage` is the quarantine's.
    """

    attempt: Attempt
    storage: Storage
    target_bytes: int

    def __call__(self, paths: Sequence[str], write_token: str) -> list[dict[str, Any]]:
        """Writes the logs of some staged files; returns one write stat per base file."""
        main, require = self.attempt.storage, self.attempt.require_wanted
        with BaseFileWriter(self.storage, self.attempt.instant, write_token, self.target_bytes, require) as writer:
            for path in paths:
                with main.filesystem.open_input_stream(main.full(path)) as source:
                    for batch in pa.ipc.open_stream(source):
                        rows = pa.Table.from_batches([batch])
                        writer.write(rows.drop_columns([_KEY]), rows[_KEY].combine_chunks(), None, None)
            return writer.close()


def logs_of(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Quarantined logs as `sls.decode` gives them with these `keys`."""
    columns: dict[str, pa.Array] = {
        "__cursor__": flat(rows["cursor"]),
        "__index__": flat(rows["log_index"]),
        "__time__": pa.array(flat(rows["log_time"]).cast(pa.int64()).to_numpy() // 1_000_000, pa.uint32()),
        "__time_ns_part__": flat(rows["log_time_ns_part"]).cast(pa.uint32()),
        "__topic__": flat(rows["topic"]),
        "__source__": flat(rows["source"]),
    }
    pairs = flat(rows[_PAIRS])
    owner = np.repeat(np.arange(len(pairs)), np.diff(np.asarray(pairs.offsets)))
    inner = pairs.flatten()
    names, values = inner.field("key"), inner.field("value")
    encoded = names.dictionary_encode()
    code_by_name = {name: code for code, name in enumerate(encoded.dictionary.to_pylist())}
    codes = np.asarray(encoded.indices)
    named = [key for key in keys if key not in META.names]
    for key in named:
        places = np.full(len(pairs), -1, np.int64)
        if (code := code_by_name.get(key.encode())) is not None:
            hits = np.nonzero(codes == code)[0]
            places[owner[hits]] = hits
        columns[key] = values.take(pa.array(places, mask=places < 0))
    rest = ~np.isin(codes, [code_by_name[key.encode()] for key in named if key.encode() in code_by_name])
    offsets = np.zeros(len(pairs) + 1, np.int32)
    np.cumsum(np.bincount(owner[rest], minlength=len(pairs)), out=offsets[1:])
    indices = pa.array(np.nonzero(rest)[0])
    columns[REST.name] = pa.MapArray.from_arrays(
        pa.array(offsets), names.take(indices), values.take(indices), REST.type
    )
    return pa.table(columns)


def _rows(logs: pa.Table, why: pa.Table, shard: int, origin: Origin) -> pa.Table:
    count = logs.num_rows
    rest = flat(logs[REST.name])
    pairs = arrow_type(dict(COLUMNS)[_PAIRS])
    items = pa.StructArray.from_arrays([rest.keys, rest.items], fields=list(pairs.value_type))
    seconds = flat(logs["__time__"]).to_numpy().astype(np.int64)
    columns = {
        "shard": pa.array(np.full(count, shard, np.int32)),
        "cursor": flat(logs["__cursor__"]),
        "log_index": flat(logs["__index__"]),
        "pipeline": pa.repeat(origin.pipeline, count),
        "transaction_id": pa.repeat(origin.transaction, count),
        "planned": pa.array(np.full(count, origin.planned * 1_000_000, np.int64)),
        "log_time": pa.array(seconds * 1_000_000),
        "log_time_ns_part": flat(logs["__time_ns_part__"]),
        "topic": flat(logs["__topic__"]),
        "source": flat(logs["__source__"]),
        _PAIRS: pa.ListArray.from_arrays(rest.offsets, items, type=pairs),
        **{name: flat(why[name]) for name in why.column_names},
    }
    return pa.table({name: columns[name].cast(arrow_type(type_)) for name, type_ in COLUMNS})
