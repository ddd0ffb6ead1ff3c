"""Rows that another client took out of the table, by a change that a person accepted; kept beside the table's timeline.

An accepted change has two files: the keys of the rows that it took, and then the note that accepts it. They stay for
good: no cleaning, archival or rebuild of the ledger forgets what was erased. A key names a shard and a cursor, and
nothing of the row. Of a table with upserts, whose keys are columns, only the number of rows is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from airflow_provider_slshudi.exceptions import ForeignWrite
from airflow_provider_slshudi.handover import ROOT
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.storage.files import Storage

if TYPE_CHECKING:
    import pyarrow as pa

KEY, WRITTEN = "key", "written"
"""Columns of the keys' file: a row's key, and the instant that wrote it."""
TABLE = "table"
"""Stands for the main table where it is said whose rows were taken; those beside it have their keys."""
_FOLDER = f"{ROOT}/erased"


@dataclass(frozen=True)
class Erasure:
    """A change that another client made, which took rows away and nothing else.

    Attributes:
        of: TABLE, or the key of a table beside.
        instant: the change's instant.
        operation: Hudi's name of the change.
        rows: how many rows it took; None where the table has upserts and its commit does not count them.
    """

    of: str
    instant: str
    operation: str
    rows: int | None


def is_accepted(main: Storage, of: str, instant: str) -> bool:
    """Whether a person accepted the change."""
    return main.exists(_note(of, instant))


def require_accepted(main: Storage, uri: str, pipeline: str, of: str, instant: str, operation: str) -> None:
    """Refuses another client's change of one of a pipeline's tables, unless a person accepted it as an erasure.

    Args:
        main: the main table's storage.
        uri: of the table that was changed.
        pipeline: its name.
        of: TABLE, or the key of a table beside.
        instant: the change's instant.
        operation: Hudi's name of the change.

    Raises:
        ForeignWrite: no person accepted it.
    """
    if is_accepted(main, of, instant):
        return
    raise ForeignWrite(
        f"{uri}: pipeline {pipeline} did not write instant {instant} ({operation}). Nothing more is written until you "
        "decide: if it only took rows away (retention, erasure) and was meant, run `slshudi table accept-erased "
        f"{pipeline} --reason TEXT`; if it added or changed rows and was meant, `slshudi ledger rebuild {pipeline}` "
        "takes the table as it is; if it was not meant, find out who writes there, and restore the table to before it",
        table=uri,
        instant=instant,
        operation=operation,
    )


def write_keys(main: Storage, of: str, instant: str, taken: Iterable[tuple[int, pa.Table]]) -> int:
    """Writes the keys of the rows that a change took; they count once the change is accepted.

    Args:
        main: the main table's storage.
        of: TABLE, or the key of a table beside.
        instant: the change's instant.
        taken: numbers of rows, with the keys (KEY, WRITTEN) of those that are gone.

    Returns:
        The number of all rows.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path, rows = _keys(of, instant), 0
    stream = main.create(path)
    schema = pa.schema([(KEY, pa.string()), (WRITTEN, pa.string())])
    with pq.ParquetWriter(stream, schema, compression="zstd", use_dictionary=[WRITTEN]) as writer:
        for count, keys in taken:
            rows += count
            writer.write_table(keys.cast(schema))
    main.complete(path, stream)
    return rows


def accept(main: Storage, erasure: Erasure, reason: str) -> None:
    """Accepts the change."""
    main.write(_note(erasure.of, erasure.instant), json.dumps({**asdict(erasure), "reason": reason}).encode())


def accepted(main: Storage) -> list[Erasure]:
    """The accepted changes, oldest first."""
    erasures = []
    for name in sorted(main.names(_FOLDER) or []):
        if name.endswith(".json"):
            content = main.read_json(f"{_FOLDER}/{name}")
            erasures.append(Erasure(**{field: content[field] for field in ("of", "instant", "operation", "rows")}))
    return sorted(erasures, key=lambda item: item.instant)


def tables_of(main: Storage) -> list[str]:
    """The tables out of which accepted changes took rows: TABLE, or keys of tables beside."""
    return sorted({item.of for item in accepted(main)})


def keys_of(main: Storage, of: str) -> list[str]:
    """Paths of the files with the keys that accepted changes took."""
    return main.existing([_keys(of, item.instant) for item in accepted(main) if item.of == of])


def count(main: Storage, written: str, parts: Sequence[Range]) -> list[int]:
    """How many rows that one instant wrote accepted changes took out of each part of its ranges."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    counts = [0] * len(parts)
    for path in (path for table in tables_of(main) for path in keys_of(main, table)):
        rows = pq.read_table(main.full(path), filesystem=main.filesystem, filters=[(WRITTEN, "=", written)])
        if not rows.num_rows:
            continue
        keys = pc.split_pattern(rows[KEY].combine_chunks(), "-", max_splits=2)
        shards, cursors = (pc.cast(pc.list_element(keys, place), "int64") for place in (0, 1))
        for number, part in enumerate(parts):
            within = pc.and_(pc.greater_equal(cursors, part.begin), pc.less(cursors, part.end))
            counts[number] += pc.sum(pc.and_(pc.equal(shards, part.shard), within)).as_py() or 0
    return counts


def _note(of: str, instant: str) -> str:
    return f"{_FOLDER}/{of}-{instant}.json"


def _keys(of: str, instant: str) -> str:
    return f"{_FOLDER}/{of}-{instant}.parquet"
