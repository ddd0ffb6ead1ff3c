"""Files of instants that were given up, written or left after the rollback: gone before anyone reads them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_slshudi.exceptions import TableError
from airflow_provider_slshudi.handover.job_order import Verb
from airflow_provider_slshudi.services import maintenance, metadata
from airflow_provider_slshudi.transaction import steps
from airflow_provider_slshudi.transaction.settle import settle
from tests.scenarios import Meanwhile, Scenario
from tests.transaction.checks import assert_exact
from tests.transaction.served import batches, served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Make = Callable[..., Scenario]


@dataclass(frozen=True)
class Written:
    """The files that a batch wrote, and what was in them."""

    files: dict[Path, bytes]

    def there(self) -> list[Path]:
        return [path for path in self.files if path.exists()]

    def put_back(self) -> None:
        """As a task that stood still through the rollback, or a JVM that could not name them, leaves them."""
        for path, content in self.files.items():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)


def abandoned(pipeline: Scenario, first: int) -> Written:
    """A batch whose append ended and which nobody goes on with."""
    pipeline.put(10, first=first)
    work = pipeline.by("run-abandoned")
    opened = pipeline.open(work)
    steps.append(work, opened.id, opened.token)
    instant = pipeline.work.ledger.get(opened.id).instant
    files = Path(pipeline.work.storage.full("")).glob(f"event_date=*/*_{instant}.parquet")
    written = Written({path: path.read_bytes() for path in files})
    assert written.files
    return written


def listed(spark: SparkSession, pipeline: Scenario) -> int:
    """What a reader sees that lists files."""
    reader = spark.read.format("hudi").option("hoodie.metadata.enable", "false")
    return int(reader.load(pipeline.work.storage.full("")).count())


def test_a_rollback_that_left_its_files_is_finished_without_the_jvm(scenario: Make) -> None:
    pipeline = scenario(shards=1)
    batches(pipeline, 1)
    written = abandoned(pipeline, 10)
    blind = Meanwhile(pipeline.work.launcher, Verb.ROLLBACK, written.put_back)
    settle(pipeline.by("run-next", launcher=blind), lambda run: True)
    assert not written.there()
    assert_exact(pipeline, 20)


def test_a_file_written_after_its_rollback_is_gone_before_archival_passes_it_and_later_it_is_no_lacking_one(
    spark: SparkSession, scenario: Make
) -> None:
    pipeline = served(scenario)
    batches(pipeline, 1)
    written = abandoned(pipeline, 10)
    settle(pipeline.by("run-next"), lambda run: True)
    assert not written.there()
    written.put_back()
    assert pipeline.batch("run-again").rows == 10
    logs = batches(pipeline, 4, first=20)
    assert maintenance.archive(pipeline.by("maintenance")).instants > 2
    assert not written.there() and listed(spark, pipeline) == logs

    # Later than anybody looks for it.
    assert pipeline.work.storage.names(".hoodie/slshudi/aborted")
    maintenance.archive(pipeline.by("maintenance"))
    assert not pipeline.work.storage.names(".hoodie/slshudi/aborted")
    written.put_back()
    found = metadata.check_metadata(pipeline.by("check"))
    assert (found.lacking, found.leftovers, found.unknown, found.ok) == (0, 1, 0, False)
    assert found.examples == tuple(str(path.relative_to(pipeline.work.storage.full(""))) for path in written.files)
    _, after = metadata.rebuild_metadata(pipeline.by("rebuild"))
    assert after.ok and not written.there() and listed(spark, pipeline) == logs


def test_a_file_of_nobody_is_named_and_no_metadata_table_is_made_that_shows_it(
    spark: SparkSession, scenario: Make
) -> None:
    pipeline = served(scenario)
    logs = batches(pipeline, 1)
    (path,) = Path(pipeline.work.storage.full("")).glob("event_date=*/*.parquet")
    stray = path.with_name(f"{path.name.rpartition('_')[0]}_20250101000000000.parquet")
    stray.write_bytes(path.read_bytes())
    with pytest.raises(TableError, match=rf"1 files were committed.* for example {path.parent.name}/{stray.name}"):
        metadata.rebuild_metadata(pipeline.by("rebuild"))
    stray.unlink()
    assert metadata.rebuild_metadata(pipeline.by("rebuild"))[1].ok and listed(spark, pipeline) == logs
