"""The tables that readers are asked for: one of each kind, in each of Hudi's versions, with the rows each has to show.

`tests.differential.tables.Table` writes them through the package's own client and keeps the model of their rows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.config.table import FORMER_VERSION
from airflow_provider_slshudi.hudi.client import services
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.timeline import Timeline
from tests.differential.tables import BUCKETS, Row, Shape, Table
from tests.readers.mirrors import Mirrors, with_mirrors
from tests.readers.questions import Question, questions_of
from tests.readers.rows import ESCAPED_PARTITIONS, PARTITION, PLAIN_PARTITIONS, TYPES, WIDER, row_of

VERSIONS = (6, 8, 9)
"""The versions of Hudi's tables of which one table of each kind is made."""
HUDI, ICEBERG, DELTA = "hudi", "iceberg", "delta"
FORMS = (HUDI, ICEBERG, DELTA)
_BATCH = 12
_MOST_COMMITS = 3
# Hudi archives what its metadata table has compacted.
_ARCHIVABLE = {"hoodie.metadata.compact.max.delta.commits": "1"}


@dataclass(frozen=True)
class ReaderTable:
    """A table on disk, in one of its forms, and what a reader has to answer.

    Attributes:
        version: Hudi's version of the table; mirrors stand on a table of it, too.
        types: the columns' types by their names.
        rows: the rows, each with `n` as its number.
        hudi_path: the folder of the Hudi table.
        suffix: what a table beside the one of its kind has at the end of its name.
    """

    kind: str
    version: int
    form: str
    types: dict[str, str]
    rows: list[Row]
    hudi_path: str
    questions: list[Question]
    suffix: str = ""

    @property
    def name(self) -> str:
        """The name in catalogs, which is the same in each form."""
        return f"v{self.version}_{self.kind}{self.suffix}"


@dataclass(frozen=True)
class Kind:
    """One kind of table: what is done to it after its first batch, and whether it is mirrored."""

    title: str
    fill: Callable[[WrittenTable], None]
    type: str = "append"
    partitions: tuple[str | None, ...] = PLAIN_PARTITIONS
    mirrored: bool = True


class WrittenTable(Table):
    """A table whose rows are those of `row_of`."""

    def __init__(self, gateway: Gateway, folder: Path, kind: Kind, version: int, mirrors: Mirrors | None) -> None:
        types, upsert = dict(TYPES), None
        if kind.type != "append":
            types |= {"k": "string", "o": "bigint", "gone": "boolean"}
            upsert = {"record_key": ["k"], "buckets": BUCKETS, "ordering_field": "o", "delete_marker": "gone"}
        shape = Shape(kind.type, types, PARTITION, upsert, options=_ARCHIVABLE, version=version)
        self.kind, self._mirrors = kind, mirrors
        super().__init__(gateway, folder, shape, random.Random(version))

    def batch(self) -> None:
        """Commits twelve rows more, and brings the mirrors up to date."""
        rows = [self._row() for _ in range(_BATCH)]
        if self.shape.kind == "append":
            self._append(rows)
        else:
            self._upsert(rows)
        self.mirror()

    def leave_pending(self) -> None:
        """Writes the files of a batch that is not committed."""
        self._write_files([self._row() for _ in range(_BATCH)])

    def widen(self) -> None:
        """Adds a column, and widens an int to bigint and a decimal."""
        self.shape.types |= {"extra": "string", **WIDER}
        self.pipeline = self.shape.pipeline(self.folder)

    def archive(self) -> None:
        """Archives all but a few commits of the active timeline."""
        keep = {"keep": {"commits": 1}, "min_commits": 2, "max_commits": _MOST_COMMITS}
        described = self.pipeline.model_dump(mode="json")
        described["maintenance"] |= keep
        services.archive(self.gateway, Pipeline.model_validate(described))
        assert Timeline.load(self.storage).archived_changes(), "nothing was archived"

    def mirror(self) -> None:
        """Brings the mirrors up to date, where the table has some."""
        if self._mirrors is not None and self.kind.mirrored:
            self._mirrors.follow(with_mirrors(self.pipeline, self.folder.name))

    def _row(self) -> Row:
        self._numbers += 1
        own = {name: type_ for name, type_ in self.shape.types.items() if name not in ("k", "o", "gone")}
        return row_of(self._numbers, own, self.kind.partitions)


def _archived(table: WrittenTable) -> None:
    for _ in range(_MOST_COMMITS + 2):
        table.batch()
    table.archive()


def _evolved(table: WrittenTable) -> None:
    table.widen()
    table.batch()


def _clustered(table: WrittenTable) -> None:
    table.batch()
    table.cluster()
    assert "clustering" in table.acts or len(table.acts) > 2, table.acts


def _compacted(table: WrittenTable) -> None:
    table.batch()
    table.compact()


KINDS: dict[str, Kind] = {
    "append": Kind("appended", WrittenTable.batch),
    "escaped": Kind("escaped partition values", WrittenTable.batch, partitions=ESCAPED_PARTITIONS),
    "pending": Kind("a batch is pending", WrittenTable.leave_pending),
    "clustered": Kind("clustered", _clustered),
    "archived": Kind("archived", _archived, mirrored=False),
    "evolved": Kind("columns evolved", _evolved),
    "cow": Kind("copy-on-write upserts", WrittenTable.batch, "copy_on_write"),
    "mor": Kind("merge-on-read, log files", WrittenTable.batch, "merge_on_read"),
    "compacted": Kind("merge-on-read, compacted", _compacted, "merge_on_read"),
}


def can_be(kind: str, version: int) -> bool:
    """Whether a table of this version may be of the kind; version 6 has no log files of ours."""
    return version != FORMER_VERSION or KINDS[kind].type != "merge_on_read"


def make(
    gateway: Gateway, folder: Path, kinds: Sequence[str], versions: Sequence[int], mirrors: Mirrors | None
) -> Iterator[tuple[WrittenTable, list[ReaderTable]]]:
    """Writes tables of these kinds and versions, one after the other, each in all of its forms.

    Args:
        gateway: the way to Hudi's classes in a running JVM.
        folder: the folder of all tables.
        kinds: keys of KINDS.
        versions: Hudi's versions of tables.
        mirrors: the mirrors' catalog; None: there are none.
    """
    for version in versions:
        for kind in (one for one in kinds if can_be(one, version)):
            table = WrittenTable(gateway, folder / f"v{version}_{kind}", KINDS[kind], version, mirrors)
            table.batch()
            KINDS[kind].fill(table)
            table.mirror()
            forms = FORMS if mirrors is not None and KINDS[kind].mirrored else (HUDI,)
            yield table, [_in_form(table, kind, version, form) for form in forms]


def _in_form(table: WrittenTable, kind: str, version: int, form: str) -> ReaderTable:
    newest = table.versions[-1]
    rows: list[dict[str, Any]] = []
    for row in newest.rows if form == HUDI else newest.base:
        rows.append({name: row.get(name) for name in newest.types})
    value = next(text for text in KINDS[kind].partitions if text is not None)
    questions = questions_of(newest.types, PARTITION, value)
    return ReaderTable(kind, version, form, dict(newest.types), rows, table.storage.full(""), questions)
