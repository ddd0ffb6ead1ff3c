"""Pipeline files: what they may say, and how a wrong one is refused."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from airflow_provider_slshudi.config.load import load_pipeline, parse_pipeline
from airflow_provider_slshudi.config.maintenance import Clustering
from airflow_provider_slshudi.config.pipeline import Pipeline, Spark
from airflow_provider_slshudi.config.values import parse_size
from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.hudi.files.merge import PLACE
from airflow_provider_slshudi.hudi.files.parquet import KEY, SEQUENCE
from tests.pipelines import customers

EXAMPLE = Path(__file__).parents[2] / "dags" / "pipelines" / "ad_events.yaml"

SMALL = """\
name: clicks
source:
  project: shop
  logstore: clicks
table:
  path: s3a://lake/clicks
  name: clicks
  partition: {by: event_time, column: at}
columns:
  - {name: id}
  - {name: at, type: timestamp, format: millis, key: ts}
"""


def changed(path: str, value: object) -> str:
    """The small pipeline with one field, by its dotted path, set anew; None removes it."""
    data = yaml.safe_load(SMALL)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    target: Any = data
    for part in parents:
        target = target[part] if isinstance(part, int) else target.setdefault(part, {})
    if value is None:
        del target[last]
    else:
        target[last] = value
    return yaml.safe_dump(data, sort_keys=False)


def refused(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as error:
        parse_pipeline(text, "clicks.yaml")
    return error.value


def test_a_small_pipeline_gets_sensible_defaults() -> None:
    found = parse_pipeline(SMALL, "clicks.yaml")
    assert found.source.identity == "sls://shop/clicks"
    assert (found.source.start, found.source.on_expired, found.misfits) == ("begin", "fail", "nullify")
    assert [column.source_key for column in found.columns] == ["id", "ts"]
    assert found.table.partition is not None and found.table.partition.name == "event_date"
    assert found.every == timedelta(minutes=5)
    assert (found.source.read_bytes_per_second, found.source.reads_per_second) == (10_000_000, 100)
    assert found.source.total_bytes_per_second is None
    assert (found.batch.max_bytes, found.batch.target_file_bytes) == (4 * 2**30, 128 * 2**20)


def test_maintenance_is_hourly_and_keeps_a_day_unless_told_otherwise() -> None:
    found = parse_pipeline(SMALL, "clicks.yaml").maintenance
    assert (found.every, found.keep.hours, found.keep.commits) == (timedelta(hours=1), 24, None)
    assert (found.min_commits, found.max_commits) == (100, 150)
    told = {"schedule": "10m", "keep": {"commits": 5}, "min_commits": 10, "max_commits": 20}
    found = parse_pipeline(changed("maintenance", told), "clicks.yaml").maintenance
    assert (found.every, found.keep.hours, found.keep.commits) == (timedelta(minutes=10), None, 5)


def test_small_files_are_clustered_unless_told_otherwise_or_rows_have_keys() -> None:
    found = parse_pipeline(SMALL, "clicks.yaml")
    assert found.clusters and found.maintenance.clustering == Clustering(small_file="64MiB", target_file="256MiB")
    assert not parse_pipeline(changed("maintenance", {"clustering": None}), "clicks.yaml").clusters
    assert not customers(Path("/lake/customers"), "copy_on_write").clusters


def test_log_files_are_compacted_after_ten_commits_unless_told_otherwise() -> None:
    found = parse_pipeline(SMALL, "clicks.yaml")
    assert found.maintenance.compact_after == 10 and not found.compacts
    assert customers(Path("/lake/customers"), "merge_on_read").compacts
    assert not customers(Path("/lake/customers"), "copy_on_write").compacts


def test_a_pace_is_set_for_a_shard_and_for_all() -> None:
    text = changed("source.read_bytes_per_second", "2.5MB")
    text = text.replace("  logstore:", "  reads_per_second: 0.5\n  total_bytes_per_second: 1GiB\n  logstore:")
    source = parse_pipeline(text, "clicks.yaml").source
    assert (source.read_bytes_per_second, source.reads_per_second) == (2_500_000, 0.5)
    assert source.total_bytes_per_second == 2**30
    assert source.of_backfill == source


def test_a_backfill_may_have_a_share_of_the_pace() -> None:
    source = parse_pipeline(changed("source.backfill_share", 0.25), "clicks.yaml").source.of_backfill
    limits = source.read_bytes_per_second, source.reads_per_second, source.total_bytes_per_second
    assert limits == (2_500_000, 25, None)
    for share in (0, 1.5):
        with pytest.raises(ConfigError, match="backfill_share"):
            parse_pipeline(changed("source.backfill_share", share), "clicks.yaml")


@pytest.mark.parametrize("field", ["read_bytes_per_second", "reads_per_second", "total_bytes_per_second"])
@pytest.mark.parametrize("value", [0, -1, "fast", ".inf"])
def test_a_pace_that_is_none_is_refused(field: str, value: object) -> None:
    assert refused(changed(f"source.{field}", value)).field == f"source.{field}"


def test_the_example_loads() -> None:
    found = load_pipeline(EXAMPLE)
    assert (found.name, found.every, len(found.columns)) == ("ad_events", timedelta(seconds=30), 17)


def test_a_pipeline_survives_json_which_is_how_it_travels_to_jobs() -> None:
    found = load_pipeline(EXAMPLE)
    assert type(found).model_validate(found.model_dump(mode="json")) == found


def test_a_quarantine_is_beside_the_table_unless_told_otherwise() -> None:
    found = parse_pipeline(SMALL, "clicks.yaml")
    assert (found.quarantines, found.quarantine_path) == (False, f"{found.table.path}_quarantine")
    elsewhere = parse_pipeline(changed("quarantine", {"path": "s3a://lake/aside/"}), "clicks.yaml")
    assert elsewhere.quarantine_path == "s3a://lake/aside"
    assert parse_pipeline(changed("misfits", "quarantine"), "clicks.yaml").quarantines
    bounds = {"late": "7d", "rule": "quarantine"}
    assert parse_pipeline(changed("table.partition.bounds", bounds), "clicks.yaml").quarantines


@pytest.mark.parametrize(
    ("text", "bytes_"), [("512MiB", 2**29), ("2GB", 2 * 10**9), ("1.5 KiB", 1536), (7, 7), ("7", 7), ("10B", 10)]
)
def test_sizes(text: object, bytes_: int) -> None:
    assert parse_size(text) == bytes_


@pytest.mark.parametrize(
    ("schedule", "every"),
    [
        ("30s", timedelta(seconds=30)),
        ("2h", timedelta(hours=2)),
        ("@continuous", "@continuous"),
        ("*/5 * * * *", "*/5 * * * *"),
    ],
)
def test_schedules(schedule: str, every: object) -> None:
    assert parse_pipeline(changed("schedule", schedule), "clicks.yaml").every == every


@pytest.mark.parametrize(
    ("freshness", "every"),
    [("5m", timedelta(seconds=100)), ("30s", timedelta(seconds=10)), ("29s", "@continuous"), ("1s", "@continuous")],
)
def test_a_third_of_a_promised_freshness_passes_between_two_runs(freshness: str, every: object) -> None:
    found = parse_pipeline(changed("freshness", freshness), "clicks.yaml")
    assert found.every == every
    assert Pipeline.model_validate(found.model_dump(mode="json")) == found, "as drivers get it"


def test_a_freshness_leaves_no_schedule_to_choose() -> None:
    with pytest.raises(ConfigError, match="give schedule or freshness"):
        parse_pipeline(changed("freshness", "30s") + "schedule: 1m\n", "clicks.yaml")


@pytest.mark.parametrize(
    ("path", "value", "field", "told"),
    [
        ("freshness", "soon", "freshness", "expected a time like 30s"),
        ("name", "two words", "name", "'two words'"),
        ("name", None, "name", "Field required"),
        ("schedule", "sometimes", "schedule", "expected a pause like 30s"),
        ("source.start", "middle", "source.start", "'middle'"),
        ("source.project", "", "source.project", "at least 1 character"),
        ("source.on_expired", "ignore", "source.on_expired", "'fail' or 'skip'"),
        ("source.secret", "x", "source.secret", "not permitted"),
        ("table.path", "/lake/clicks", "table.path", "expected a URI like file:///lake/events"),
        ("table.path", "s3a:///clicks", "table.path", "expected a URI"),
        ("table.path", "file://host/clicks", "table.path", "expected a URI"),
        ("table.path", "hdfs:///lake/clicks", "table.path", "hdfs://nameservice/lake/events"),
        ("table.path", "hdfs://lake:8020/a:b/clicks", "table.path", "HDFS has no such names"),
        ("table.path", "s3a://lake/clicks?old", "table.path", "expected none of '?' in it: Spark takes"),
        ("table.path", "file:///lake/{a}[b]*\\", "table.path", "'*' '[' '\\\\' ']' '{' '}'"),
        ("table.path", "file:///lake/a\nb", "table.path", "control characters"),
        ("table.path", "file:///lake/../clicks", "table.path", "nor `.` or `..`"),
        ("table.path", "s3a://lake/./clicks", "table.path", "nor `.` or `..`"),
        ("table.path", "s3a://lake//clicks", "table.path", "no empty folder's name"),
        ("quarantine", {"path": "s3a://lake/aside?new"}, "quarantine.path", "expected none of '?'"),
        ("table.partition.column", "id", "", "must name a timestamp column: at"),
        ("table.partition.timezone", "Moon/Base", "table.partition.timezone", "IANA time zone"),
        ("table.partition.by", "hash", "table.partition", "event_time"),
        ("table.options", {"hoodie.clean.automatic": "true"}, "table", "exactly-once rests on it"),
        ("table.options", {"fs.s3a.secret.key": "x"}, "table", "use a connection"),
        ("catalog.metastore", "metastore:9083", "catalog.metastore", "expected thrift://host:port"),
        ("misfits", "drop", "misfits", "'nullify', 'fail' or 'quarantine'"),
        ("max_misfits", 1.5, "max_misfits", "less than or equal to 1"),
        ("quarantine", {"path": "/lake/q"}, "quarantine.path", "expected a URI"),
        ("quarantine", {"path": "s3://lake/clicks"}, "", "share a folder"),
        ("quarantine", {"path": "s3a://lake/clicks/aside"}, "", "share a folder"),
        ("quarantine", {"path": "oss://lake/aside"}, "", "are in two object stores"),
        ("routes", [{"name": "a", "where": "id >"}], "", "routes: a: "),
        ("routes", [{"name": "a", "where": "nothing = 1"}], "", "nothing is no column here"),
        ("routes", [{"name": "a", "where": "concat('a', 'b')"}], "", "routes: a: expected a condition"),
        ("routes", [{"name": "a", "where": "1 = 1"}, {"name": "a", "where": "1 = 2"}], "", "two tables are called a"),
        ("routes", [{"name": "clicks", "where": "1 = 1"}], "", "two tables are called clicks"),
        ("routes", [{"name": "quarantine", "where": "1 = 1"}], "", "share a folder"),
        ("routes", [{"name": "a", "where": "1 = 1", "path": "s3a://lake/clicks/a"}], "", "share a folder"),
        ("routes", [{"name": "a", "where": "1 = 1", "path": "oss://lake/a"}], "", "are in two object stores"),
        ("routes", [{"name": "A", "where": "1 = 1"}], "routes[0].name", "expected lower-case letters"),
        ("routes", [{"name": "a"}], "routes[0].where", "Field required"),
        ("routes", [{"name": f"r{n}", "where": "1 = 1"} for n in range(33)], "routes", "at most 32"),
        ("table.path", "oss://lake.oss-cn-hangzhou.aliyuncs.com/clicks", "table.path", "a bucket's name alone"),
        ("table.path", "s3a://KEY:opensesame@lake/clicks", "table.path", "no user or key before lake"),
        ("table.path", "hdfs://somebody@node:8020/clicks", "table.path", "no user or key before node:8020"),
        ("table.partition.bounds", {"rule": "fail"}, "table.partition.bounds", "give late, future or both"),
        ("table.partition.bounds", {"late": "soon"}, "table.partition.bounds.late", "expected a time like 30s"),
        ("checks", [{"name": "a"}], "checks[0]", "give one of every, batch, freshness"),
        ("checks", [{"name": "a", "every": "id > 1", "freshness": "1h"}], "checks[0]", "give one of"),
        ("checks", [{"name": "a", "freshness": "soon"}], "checks[0].freshness", "expected a time like 30s"),
        ("checks", [{"name": "a", "every": "id > 1"}] * 2, "", "checks named twice: a"),
        ("columns.0.name", "ID", "columns[0].name", "lower-case"),
        ("columns.0.name", "at", "", "columns named twice: at"),
        ("columns.0.renamed_from", ["at"], "", "columns named twice: at"),
        ("columns.0.type", "decimal", "columns[0].type", "'decimal': expected ( at ''; a type is one of string, int"),
        (
            "columns.0.type",
            "decimal(39,2)",
            "columns[0].type",
            "'decimal(39,2)': decimal(39,2): expected 1 to 38 digits",
        ),
        ("columns.0.type", "map<int,int>", "columns[0].type", "the keys of a map are strings"),
        ("columns.0.type", "array<timestamp>", "columns[0]", "a timestamp needs `format`"),
        ("columns.1.format", None, "columns[1]", "a timestamp needs `format`"),
        (
            "columns.1.format",
            "EEE yyyy",
            "columns[1].format",
            "'EEE yyyy': expected seconds, millis, micros, nanos, iso8601 or",
        ),
        ("columns.0.format", "millis", "columns[0]", "other types have none"),
        ("columns.1.timezone", "Moon/Base", "columns[1].timezone", "'Moon/Base': expected an IANA time zone"),
        ("columns.1.timezone", "Asia/Shanghai", "columns[1]", "counts since 1970 have none"),
        ("columns.0.timezone", "Asia/Shanghai", "columns[0]", "`timezone` is for timestamps"),
        ("columns.1.path", "a.b", "columns[1].path", "'a.b': a path begins with $"),
        ("rest_column", "event_date", "", "columns named twice: event_date"),
        ("batch.max_bytes", "lots", "batch.max_bytes", "like 512MiB"),
        ("batch.task_bytes", 0, "batch.task_bytes", "greater than 0"),
        ("spark.conf", {"spark.my.password": "x"}, "spark", "use a connection"),
        ("table.options", {"hoodie.keep.max.commits": "30"}, "table", "hoodie.keep.max.commits may not be set"),
        (
            "maintenance.clustering",
            {"small_file": "1MiB", "target_file": "1MiB"},
            "maintenance.clustering",
            "expected small_file < target_file",
        ),
        ("maintenance.clustering", {"order": "zorder"}, "maintenance.clustering", "needs two columns in `sort`"),
        ("maintenance.clustering", {"sort": ["nowhere"]}, "", "maintenance.clustering.sort names nowhere"),
        ("maintenance.schedule", "often", "maintenance.schedule", "expected a pause like 30s"),
        ("maintenance.keep", {"hours": 1, "commits": 1}, "maintenance.keep", "give either hours or commits"),
        ("maintenance.keep", {}, "maintenance.keep", "give either hours or commits"),
        ("maintenance.keep", {"hours": 0}, "maintenance.keep.hours", "greater than 0"),
        ("maintenance.keep", {"commits": 100}, "maintenance", "expected keep.commits < min_commits < max_commits"),
        (
            "table.options",
            {"hoodie.compact.inline.max.delta.commits": "5"},
            "table",
            "max.delta.commits may not be set",
        ),
        ("maintenance.compact_after", 0, "maintenance.compact_after", "greater than 0"),
        ("maintenance.max_commits", 100, "maintenance", "found 0, 100, 100"),
    ],
)
def test_a_wrong_field_is_refused_by_file_line_field_and_value(path: str, value: object, field: str, told: str) -> None:
    error = refused(changed(path, value))
    assert error.source == "clicks.yaml" and error.field == field
    assert str(error).startswith("clicks.yaml line ") and told in str(error)


UPSERT = """\
  type: merge_on_read
  upsert: {record_key: id, ordering_field: at, delete_marker: gone, buckets: 8}
columns:
  - {name: gone, type: boolean}
  - {name: price, type: double}
"""


def test_logs_upsert_rows_where_the_table_says_so() -> None:
    appended = parse_pipeline(SMALL, "clicks.yaml").table
    assert (appended.type, appended.upsert) == ("copy_on_write", None)
    table = parse_pipeline(SMALL.replace("columns:\n", UPSERT), "clicks.yaml").table
    assert table.type == "merge_on_read" and table.upsert is not None
    assert (table.upsert.record_key, table.upsert.mode, table.upsert.partial_update) == (["id"], "event_time", False)
    last = parse_pipeline(changed("table.upsert", {"record_key": ["id"], "buckets": 1}), "clicks.yaml")
    assert last.table.upsert is not None and last.table.upsert.mode == "commit_time"


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("record_key", "user", "table.upsert.record_key 'user' is not there: it must name a column of type string"),
        ("record_key", "event_date", "'event_date' is the partition's own, which no log fills"),
        ("record_key", "price", "'price' is of type double: it must name a column of type string, int, bigint (id)"),
        ("record_key", ["id", "id"], "names a column twice: id, id"),
        ("record_key", [], "at least 1 item"),
        ("ordering_field", "price", "'price' is of type double: it must name a column of type int, bigint, timestamp"),
        ("delete_marker", "id", "'id' is of type string: it must name a column of type boolean (gone)"),
        ("merge_mode", "commit_time", "looks at no ordering_field"),
        ("merge_mode", "custom", "'event_time' or 'commit_time'"),
        ("ordering_field", None, "merge_mode event_time needs ordering_field"),
        ("buckets", 0, "greater than 0"),
        ("buckets", 10_001, "less than or equal to 10000"),
    ],
)
def test_an_upsert_that_cannot_be_is_refused(field: str, value: object, told: str) -> None:
    data = yaml.safe_load(SMALL.replace("columns:\n", UPSERT))
    if value is None:
        data["table"]["upsert"]["merge_mode"] = "event_time"
    data["table"]["upsert"][field] = value
    assert told in str(refused(yaml.safe_dump(data, sort_keys=False)))


def test_tables_that_are_appended_to_are_copy_on_write() -> None:
    assert "are only appended need no merging" in str(refused(changed("table.type", "merge_on_read")))


def test_the_version_of_the_table_is_one_of_three() -> None:
    assert [
        parse_pipeline(changed("table.version", version), "clicks.yaml").table.version for version in (6, 8, 9)
    ] == [6, 8, 9]


@pytest.mark.parametrize(
    ("version", "table", "told"),
    [
        (6, {"type": "merge_on_read"}, "version 6 has other log files"),
        (6, {"upsert": {"partial_update": True, "delete_marker": None}}, "version 6 has no partial_update"),
        (8, {"upsert": {"partial_update": True, "delete_marker": None}}, "version 8 has no partial_update"),
        (7, {}, "Input should be 6, 8 or 9"),
        (
            6,
            {"type": "copy_on_write", "options": {"hoodie.metadata.index.column.stats.enable": "true"}},
            "which columns have bounds",
        ),
    ],
)
def test_what_a_version_of_the_table_cannot_have_is_refused(version: int, table: dict[str, Any], told: str) -> None:
    data = yaml.safe_load(SMALL.replace("columns:\n", UPSERT))
    data["table"] |= {"version": version, **table, "upsert": {**data["table"]["upsert"], **table.get("upsert", {})}}
    assert told in str(refused(yaml.safe_dump(data, sort_keys=False)))


def test_what_the_upsert_says_is_no_option() -> None:
    told = "option hoodie.index.type may not be set"
    assert told in str(refused(changed("table.options", {"hoodie.index.type": "BLOOM"})))


@pytest.mark.parametrize(
    "option",
    [
        "hoodie.write.table.version",
        "hoodie.table.base.file.format",
        "hoodie.clustering.preserve.commit.metadata",
        "hoodie.metadata.auto.delete.partitions",
        "hoodie.clustering.plan.strategy.sort.columns",
        "hoodie.avro.schema",
        "hoodie.base.path",
        # Taken before, and they did nothing.
        "hoodie.partition.ttl.inline",
        "hoodie.partition.ttl.strategy.days.retain",
        "hoodie.table.version",
        "hoodie.table.cdc.enabled",
        "hoodie.datasource.write.keygenerator.class",
        "hoodie.datasource.write.operation",
        "hoodie.datasource.hive_sync.enable",
        "hoodie.bulkinsert.sort.mode",
        "hoodie.combine.before.upsert",
        "hoodie.index.class",
        "hoodie.bloom.index.parallelism",
        "hoodie.parquet.compression.codec",
        "hoodie.parquet.max.file.size",
        "hoodie.logfile.max.size",
        "hoodie.clustering.inline.max.commits",
        "hoodie.clustering.async.enabled",
        "hoodie.compact.inline.max.delta.seconds",
        "hoodie.compaction.record.merger.strategy",
        "hoodie.clean.async.enabled",
        "hoodie.clean.fileversions.retained",
        "hoodie.commits.archival.batch",
        "hoodie.write.lock.provider",
        "hoodie.write.commit.callback.http.url",
        "hoodie.write.record.merge.strategy.id",
        "hoodie.precommit.validators",
        "hoodie.embed.timeline.server.port",
        "hoodie.metaserver.enabled",
        "hoodie.metadata.index.secondary.column",
        "hoodie.filesystem.view.remote.host",
        "hoodie.no.such.option",
        "read.start-commit",
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(option: str) -> None:
    assert f"option {option} may not be set: it would have no effect" in str(
        refused(changed("table.options", {option: "6"}))
    )


@pytest.mark.parametrize(
    "option",
    [
        "hoodie.metadata.enable",
        "hoodie.metadata.compact.max.delta.commits",
        "hoodie.metadata.index.column.stats.parallelism",
        "hoodie.finalize.write.parallelism",
        "hoodie.rollback.parallelism",
        "hoodie.clustering.plan.strategy.max.bytes.per.group",
        "hoodie.clustering.plan.partition.filter.mode",
        "hoodie.compaction.strategy",
        "hoodie.compaction.target.io",
        "hoodie.memory.compaction.max.size",
        "hoodie.parquet.block.size",
        "hoodie.clean.parallelism",
        "hoodie.cleaner.parallelism",
        "hoodie.archive.beyond.savepoint",
        "hoodie.filesystem.view.type",
        "hoodie.metrics.on",
    ],
)
def test_an_option_that_takes_effect_is_taken(option: str) -> None:
    text = changed("table.options", {option: "6"})
    assert parse_pipeline(text, "clicks.yaml").table.options == {option: "6"}


def test_what_has_no_order_is_not_sorted_by() -> None:
    text = changed("maintenance.clustering", {"sort": ["tags"]}) + "rest_column: rest\n"
    text = text.replace("columns:\n", "columns:\n- {name: tags, type: 'array<int>'}\n", 1)
    assert "sort names tags: arrays, maps and structs have no order" in str(refused(text))
    assert "sort names rest:" in str(refused(text.replace("- tags", "- rest")))


def test_a_column_with_a_name_of_sparks_is_refused() -> None:
    assert "is Spark's own" in str(refused(changed("columns.0.name", "_tmp_metadata_row_index")))


@pytest.mark.parametrize("name", [SEQUENCE, KEY, *PLACE])
def test_no_column_has_the_name_of_one_that_rows_have_beside_the_tables(name: str) -> None:
    assert "expected lower-case letters" in str(refused(changed("columns.0.name", name)))


@pytest.mark.parametrize(
    "index", ["index.bloom.filter", "index.secondary", "index.expression", "record.index", "global.record.level.index"]
)
def test_indexes_that_batches_do_not_keep_are_refused(index: str) -> None:
    option = f"hoodie.metadata.{index}.enable"
    assert f"option {option} may not be set: batches keep only one of Hudi's indexes" in str(
        refused(changed("table.options", {option: "true"}))
    )
    assert parse_pipeline(changed("table.options", {option: "false"}), "clicks.yaml").table.options == {option: "false"}


def test_a_column_says_its_type_and_how_times_are_written_in_one_form() -> None:
    text = SMALL + "  - {name: paid, type: 'Decimal(9, 2)', key: doc, path: '$.items[0].price'}\n"
    text += "  - {name: seen, type: timestamp, format: dd/MMM/yyyy HH:mm, timezone: Asia/Shanghai}\n"
    text += "  - {name: born, type: date, format: dd.MM.yyyy}\n"
    text += "  - {name: parts, type: 'array<struct<at:timestamp>>', format: iso8601, timezone: Asia/Shanghai}\n"
    paid, seen, born, parts = parse_pipeline(text, "clicks.yaml").columns[2:]
    assert (paid.type, paid.source_key, paid.path) == ("decimal(9,2)", "doc", "$.items[0].price")
    assert (seen.format, seen.timezone, born.format) == ("dd/MMM/yyyy HH:mm", "Asia/Shanghai", "dd.MM.yyyy")
    assert parts.type == "array<struct<at:timestamp>>"


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ("{name: b, type: timestamp, format: 'yyyy-MM-dd HH:mm XXX', timezone: UTC}", "names its own offset"),
        ("{name: b, type: date, format: iso8601}", "as a pattern for dates"),
        ("{name: b, type: 'struct<d:date,t:timestamp>', format: yyyy-MM-dd HH:mm}", "cannot share a pattern"),
        ("{name: b, type: 'array<date>', format: yyyy-MM-dd}", "other types have none"),
    ],
)
def test_settings_of_a_column_that_contradict_each_other_are_refused(column: str, told: str) -> None:
    assert told in str(refused(f"{SMALL}  - {column}\n"))


def test_the_line_is_the_fields_own() -> None:
    line = SMALL.splitlines().index("  path: s3a://lake/clicks") + 1
    error = refused(SMALL.replace("s3a://lake/clicks", "gs://lake/clicks"))
    assert str(error).startswith(f"clicks.yaml line {line}: table.path: 'gs://lake/clicks': ")


def test_all_wrong_fields_are_told_at_once() -> None:
    error = refused(SMALL.replace("name: clicks\nsource", "name: 'a b'\nsource").replace("logstore: clicks", "logs: x"))
    assert len(str(error).splitlines()) == 3


def test_a_key_given_twice_is_refused() -> None:
    assert "line 4: source.project is given twice" in str(refused(SMALL.replace("logstore", "project")))


def test_the_line_of_what_overrides_a_merged_value_is_named() -> None:
    merged = "  - &one {name: a, type: bigint}\n  - <<: *one\n    name: b\n    type: bogus\n"
    text = SMALL.split("columns:")[0] + "columns:\n" + merged
    line = text.splitlines().index("    type: bogus") + 1
    assert f"line {line}: columns[1].type" in str(refused(text))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [1", "is no YAML"),
        ("- 1", "a mapping"),
        ("", "a mapping"),
        ("a: &x [*x]", "refers to itself"),
        ("name: 2001-99-99", "source: Field required"),
        (
            "name: null",
            'line 1: name: null: YAML reads this as no value; if a text is meant, write it in quotes: "null"',
        ),
        ("name:", "line 1: name: nothing: YAML reads this as no value"),
        ("[" * 50_000, "nested too deeply"),
        ("a: !!bool x", "is no YAML"),
        ("a: !!timestamp x", "is no YAML"),
        ('a: !!int ""', "is no YAML"),
        ("? {}\n: 1", "line 1, column 3 is no YAML: found unhashable key"),
    ],
)
def test_what_is_no_pipeline_at_all(text: str, told: str) -> None:
    assert told in str(refused(text))


@pytest.mark.parametrize(
    "text", ["no", "yes", "on", "off", "true", "010", "0x1f", "1_000", "1:30", "2026-01-31", "1e3", "1.10", ".5", "="]
)
def test_texts_are_what_was_typed_whatever_yaml_makes_of_them(text: str) -> None:
    """YAML 1.1 has flags, octal and sexagesimal numbers, and dates."""
    found = parse_pipeline(
        SMALL.replace("project: shop", f"project: {text}")
        + f"  - {{name: c, key: {text}, null_texts: [{text}]}}\nspark: {{conf: {{{text}: {text}}}}}\n",
        "clicks.yaml",
    )
    column = found.columns[-1]
    assert (found.source.project, column.key, column.null_texts) == (text, text, [text])
    assert found.spark.conf == {text: text}


def test_numbers_and_flags_are_still_numbers_and_flags() -> None:
    text = SMALL.replace("{name: id}", "{name: no, required: yes, max_bytes: 512}")
    found = parse_pipeline(
        text + "max_misfits: 1e-3\nbatch: {max_bytes: 2MiB, task_bytes: 010}\nrest_column: null\n", "clicks.yaml"
    )
    (column, _) = found.columns
    assert (column.name, column.required, column.max_bytes, found.rest_column) == ("no", True, 512, None)
    assert (found.max_misfits, found.batch.max_bytes, found.batch.task_bytes) == (0.001, 2 << 20, 10)
    since = parse_pipeline(SMALL.replace("project: shop", "project: shop\n  start: 1700000000"), "c.yaml").source.start
    assert since == 1_700_000_000
    assert parse_pipeline(text.replace("required: yes", "required: off"), "c.yaml").columns[0].required is False


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read"):
        load_pipeline(tmp_path / "none.yaml")


BOUNDED = "hoodie.metadata.index.column.stats"


@pytest.mark.parametrize(
    ("options", "upsert", "told"),
    [
        (
            {f"{BOUNDED}.column.list": "n, s"},
            None,
            "column.list names 's', string: only columns of type int, bigint",
        ),
        ({f"{BOUNDED}.column.list": "none"}, None, r"names 'none', no column: .* \(at, day, n\)"),
        (
            {f"{BOUNDED}.enable": "true"},
            {"record_key": ["n", "s"], "buckets": 1},
            r"without texts in their record_key \(s\)",
        ),
        (
            {f"{BOUNDED}.column.list": "price"},
            None,
            r"names 'price', decimal\(9,2\): .* int, bigint, date or timestamp",
        ),
        (
            {f"{BOUNDED}.column.list": "n"},
            {"record_key": "n", "buckets": 1, "partial_update": True},
            "not for merge_on_read with partial_update",
        ),
    ],
)
def test_bounds_that_would_hide_rows_are_refused(
    options: dict[str, str], upsert: dict[str, Any] | None, told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        _bounded(options, upsert)


def test_bounds_are_kept_of_what_is_sorted_by_or_asked_for() -> None:
    assert _bounded({}, None).bounded == {"n"}
    assert _bounded({f"{BOUNDED}.enable": "false"}, None).bounded == set()
    assert _bounded({f"{BOUNDED}.enable": "true"}, None).bounded == {"n", "day"}
    assert _bounded({f"{BOUNDED}.column.list": "at"}, None).bounded == {"at"}
    assert _bounded({}, {"record_key": "s", "buckets": 1}).bounded == set()


def _bounded(options: dict[str, str], upsert: dict[str, Any] | None) -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": "p",
            "source": {"project": "p", "logstore": "l"},
            "table": {
                "path": "file:///lake/t",
                "name": "t",
                "options": options,
                "upsert": upsert,
                "type": "merge_on_read" if upsert else "copy_on_write",
            },
            "columns": [
                {"name": "n", "type": "int"},
                {"name": "s"},
                {"name": "day", "type": "date"},
                {"name": "price", "type": "decimal(9,2)"},
                {"name": "at", "type": "timestamp", "format": "millis"},
            ],
            "maintenance": {"clustering": {"sort": ["n", "s", "at", "price"]}},
        }
    )


PLACES = [
    "spark.kubernetes.container.image.pullSecrets",
    "spark.kubernetes.driver.secretKeyRef.AWS_SECRET_ACCESS_KEY",
    "spark.kubernetes.executor.secrets.oss-key",
    "spark.kubernetes.kerberos.tokenSecret.name",
    "spark.kubernetes.authenticate.submission.oauthTokenFile",
    "spark.authenticate.secret.driver.file",
]
SECRETS = [
    "spark.authenticate.secret",
    "spark.kubernetes.authenticate.submission.oauthToken",
    "spark.kubernetes.driverEnv.AWS_SECRET_ACCESS_KEY",
    "spark.hadoop.fs.s3a.secret.key",
    "spark.kubernetes.secretKeyRef.AWS_SECRET_ACCESS_KEY",
]


@pytest.mark.parametrize("key", PLACES)
def test_where_a_secret_is_may_stand_in_a_file(key: str) -> None:
    assert Spark(conf={key: "there"}).conf == {key: "there"}


@pytest.mark.parametrize("key", SECRETS)
def test_a_secret_itself_may_not(key: str) -> None:
    with pytest.raises(ValidationError, match="use a connection"):
        Spark(conf={key: "there"})
