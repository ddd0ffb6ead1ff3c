"""Hudi's input formats as Hive drives them: splits of each partition, and a record reader of each split.

The classes are those of a bundle's jar, over the Hive that Spark 3.5 brings. Hive applies filters to the rows that a
record reader gives, so filters are applied here. https://hudi.apache.org/docs/querying_data/#hive
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from airflow_provider_slshudi.hudi.schema import META_COLUMNS
from tests.readers.canonical import text_of
from tests.readers.engines.harness import Asked, Rows, keeps
from tests.readers.engines.spark import session_of
from tests.readers.questions import Question

_FORMATS = {True: "HoodieParquetRealtimeInputFormat", False: "HoodieParquetInputFormat"}
"""By whether the table is merge-on-read."""
_PARTITION_FILE, _NO_VALUE = ".hoodie_partition_metadata", "__HIVE_DEFAULT_PARTITION__"
_DAY_OF_1970 = date(1970, 1, 1).toordinal()


class Hive:
    """The input formats of one jar, in the JVM of a Spark session; `times` is what the metastore calls a timestamp."""

    def __init__(self, session: Any, times: str) -> None:
        self._jvm, self._hive_types = session._jvm, {"timestamp": times}
        self._conf = session._jsc.hadoopConfiguration()

    def count(self, asked: Asked) -> int:
        return len(self._read(asked, ["n"]))

    def rows(self, asked: Asked, columns: Sequence[str], question: Question | None) -> Rows:
        names = [*columns] if question is None else [*columns, question.column]
        read = self._read(asked, names)
        return read if question is None else [row[:-1] for row in read if keeps(question, row[-1])]

    def _read(self, asked: Asked, columns: Sequence[str]) -> Rows:
        folders = sorted(file.parent for file in Path(asked.path).glob(f"*/{_PARTITION_FILE}"))
        (partition,) = {folder.name.partition("=")[0] for folder in folders}
        read = [name for name in columns if name != partition]
        rows: Rows = []
        for folder in folders:
            value = unquote(folder.name.partition("=")[2])
            there = None if value == _NO_VALUE else value
            for texts in self._rows_of(asked, folder, partition, read):
                of = {**dict(zip(read, texts, strict=True)), partition: there}
                rows.append([of[name] for name in columns])
        return rows

    def _rows_of(self, asked: Asked, folder: Path, partition: str, read: Sequence[str]) -> Iterator[list[str | None]]:
        names = [name for name in asked.types if name != partition]
        mapred = self._jvm.org.apache.hadoop.mapred
        conf = mapred.JobConf(self._conf)
        every = [*META_COLUMNS, *names]
        types = ":".join(
            self._hive_types.get(type_, type_) for type_ in (asked.types.get(name, "string") for name in every)
        )
        described = {"columns": ",".join(every), "columns.types": types, "partition_columns": partition}
        # Hive's query has the partition's columns last, which its SerDe does not know.
        query = {**described, "columns": f"{described['columns']},{partition}", "columns.types": f"{types}:string"}
        of = {"hive.io.file.readcolumn.ids": ",".join(str(every.index(name)) for name in read)}
        of |= {"hive.io.file.readcolumn.names": ",".join(read)}
        for key, value in {**query, **of}.items():
            conf.set(key, value)
        properties = self._jvm.java.util.Properties()
        for key, value in described.items():
            properties.setProperty(key, value)
        serde = self._jvm.org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe()
        serde.initialize(conf, properties)
        mapred.FileInputFormat.setInputPaths(conf, f"file:{folder}")
        is_merged = "MERGE_ON_READ" in Path(asked.path, ".hoodie", "hoodie.properties").read_text()
        package = self._jvm.org.apache.hudi.hadoop
        package = package.realtime if is_merged else package
        form = getattr(package, _FORMATS[is_merged])()
        form.setConf(conf)
        for split in form.getSplits(conf, 1):
            reader = form.getRecordReader(split, conf, mapred.Reporter.NULL)
            key, record = reader.createKey(), reader.createValue()
            while reader.next(key, record):
                yield self._texts(serde, record, [(name, asked.types[name]) for name in read])
            reader.close()

    def _texts(self, serde: Any, record: Any, columns: Sequence[tuple[str, str]]) -> list[str | None]:
        objects = self._jvm.org.apache.hadoop.hive.serde2.objectinspector.ObjectInspectorUtils
        inspector = serde.getObjectInspector()
        row, texts = serde.deserialize(record), []
        for name, type_ in columns:
            field = inspector.getStructFieldRef(name)
            value = inspector.getStructFieldData(row, field)
            writable = objects.copyToStandardObject(value, field.getFieldObjectInspector(), self._writables)
            texts.append(text_of(type_, _plain(writable)))
        return texts

    @property
    def _writables(self) -> Any:
        name = "org.apache.hadoop.hive.serde2.objectinspector.ObjectInspectorUtils$ObjectInspectorCopyOption"
        loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        options = self._jvm.java.lang.Class.forName(name, True, loader).getEnumConstants()
        return next(option for option in options if option.toString() == "WRITABLE")


def _plain(value: Any) -> Any:
    """A writable's value as Python has it."""
    if value is None:
        return None
    kind = value.getClass().getSimpleName() if hasattr(value, "getClass") else type(value).__name__
    match kind:
        case "DateWritable" | "DateWritableV2":
            return date.fromordinal(_DAY_OF_1970 + value.getDays())
        case "TimestampWritable" | "TimestampWritableV2":
            moment = value.getTimestamp()
            return moment.getTime() // 1_000 * 1_000_000 + moment.getNanos() // 1_000
        case "BytesWritable":
            return bytes(value.copyBytes())
        case "HiveDecimalWritable" | "Text":
            return value.toString()
        case "ArrayList" | "JavaList":
            return [_plain(item) for item in value]
        case "HashMap" | "LinkedHashMap" | "JavaMap":
            return {_plain(one.getKey()): _plain(one.getValue()) for one in value.entrySet()}
        case _:
            return value.get()


@contextmanager
def opened(settings: Mapping[str, Any]) -> Iterator[Hive]:
    session = session_of(settings)
    try:
        yield Hive(session, settings["times"])
    finally:
        session.stop()
