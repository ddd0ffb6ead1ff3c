"""Names and records of a timeline in both of Hudi's layouts, and an archive of the former one that was cut off."""

from __future__ import annotations

import io
import json
import struct

import fastavro
import pytest

from airflow_provider_slshudi.exceptions import TimelineUnreadable
from airflow_provider_slshudi.hudi.archive import Archived, archive_of
from airflow_provider_slshudi.hudi.layout import LAYOUT_1, LAYOUT_2, PROPERTIES, Instant, Layout, Phase, record_of
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.storage.files import Storage

T = "20260101000000001"
TEXTS = {"type": "map", "values": "string"}
SCHEMA = {
    "name": "entry",
    "type": "record",
    "fields": [
        {"name": "commitTime", "type": "string"},
        {"name": "actionType", "type": "string"},
        {"name": "actionState", "type": ["null", "string"]},
        {
            "name": "hoodieCommitMetadata",
            "type": ["null", {"type": "map", "values": {"type": "map", "values": "string"}}],
        },
    ],
}


@pytest.mark.parametrize(
    ("layout", "name", "instant"),
    [
        (LAYOUT_2, f"{T}_2.commit", Instant(T, "commit", Phase.COMPLETED, "2", f".hoodie/timeline/{T}_2.commit")),
        (LAYOUT_1, f"{T}.commit", Instant(T, "commit", Phase.COMPLETED, T, f".hoodie/{T}.commit")),
        (LAYOUT_2, f"{T}.commit", None),
        (LAYOUT_1, f"{T}.inflight", Instant(T, "commit", Phase.INFLIGHT)),
        (LAYOUT_1, f"{T}.replacecommit.requested", Instant(T, "replacecommit", Phase.REQUESTED)),
        (LAYOUT_1, f"{T}.savepoint", None),
        (LAYOUT_1, "hoodie.properties", None),
        (LAYOUT_1, f".{T}.commit.crc", None),
    ],
)
def test_a_files_name_tells_its_instant(layout: Layout, name: str, instant: Instant | None) -> None:
    assert layout.instant(name) == instant


def test_a_pending_clustering_of_the_former_layout_is_told_by_its_plan(storage: Storage) -> None:
    storage.write(PROPERTIES, b"hoodie.table.name=t\nhoodie.table.version=6\n")
    schema = {"name": "plan", "type": "record", "fields": [{"name": "operationType", "type": ["null", "string"]}]}
    for number, operation in enumerate(("CLUSTER", None, "INSERT_OVERWRITE")):
        content = io.BytesIO()
        fastavro.writer(content, fastavro.parse_schema(schema), [{"operationType": operation}])
        storage.write(f".hoodie/2026010100000000{number}.replacecommit.requested", content.getvalue())
    storage.write(".hoodie/20260101000000003.replacecommit.requested", b"")
    timeline = Timeline.load(storage)
    assert [one.action for one in timeline.pending()] == ["clustering", "replacecommit", "replacecommit", "clustering"]
    planned = timeline.pending()[0]
    assert timeline.plan(planned)["operationType"] == "CLUSTER"
    assert timeline.remove(planned)[1] == ".hoodie/20260101000000000.replacecommit.requested"


def test_a_timeline_without_properties_is_no_empty_one(storage: Storage) -> None:
    storage.write(f".hoodie/{T}.commit", b"{}")
    with pytest.raises(TimelineUnreadable, match="is not of table version 6, 8 or 9"):
        Timeline.load(storage)


def test_a_record_is_read_to_its_end() -> None:
    content = json.dumps({"operationType": "INSERT"}).encode()
    assert record_of(content) == {"operationType": "INSERT"}
    for cut in (b"", content[:-1], b"Obj\x01"):
        with pytest.raises(TimelineUnreadable, match="no whole Avro or JSON"):
            record_of(cut)


def test_an_archive_of_the_former_layout_is_read_and_a_cut_one_is_named(storage: Storage) -> None:
    commit = {"extraMetadata": {"note": "x"}}
    first = block([(T, "commit", "COMPLETED", commit), (T, "commit", "INFLIGHT", None)])
    log = first + block([("2", "clean", None, None)])
    file = ".hoodie/archived/.commits_.archive.1_1-0-1"
    storage.write(file, log)
    archive = archive_of(storage, LAYOUT_1)
    assert list(archive.instants()) == [Archived(T, T, "commit", commit), Archived("2", "2", "clean", {})]
    assert next(archive.around(T)).extra == {"note": "x"}
    for length in sorted({*range(1, len(log))} - {len(first)}):
        storage.write(file, log[:length])
        with pytest.raises(TimelineUnreadable, match=rf"archive\.1_1-0-1 \({length} bytes\) was cut off"):
            list(archive.instants())


def block(entries: list[tuple[str, str, str | None, dict[str, dict[str, str]] | None]]) -> bytes:
    """A block of Hudi's log format, as archival writes it."""
    schema = fastavro.parse_schema(SCHEMA)
    names = [field["name"] for field in SCHEMA["fields"]]  # type: ignore[index]
    body = struct.pack(">ii", 3, len(entries))
    for entry in entries:
        written = io.BytesIO()
        fastavro.schemaless_writer(written, schema, dict(zip(names, entry, strict=True)))
        body += struct.pack(">i", written.tell()) + written.getvalue()
    told = json.dumps(SCHEMA).encode()
    head = struct.pack(">iii", 1, 3, 1) + struct.pack(">ii", 2, len(told)) + told + struct.pack(">q", len(body))
    size = len(head) + len(body) + 4 + 8
    return b"#HUDI#" + struct.pack(">q", size) + head + body + struct.pack(">iq", 0, size + 6)
