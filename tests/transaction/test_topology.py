"""The topology of docker-compose.yaml as processes: PostgreSQL, a Spark cluster, an S3 store, the local SLS server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider_slshudi.exceptions import CommitStateUnknown
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.spark.launch import SubprocessLauncher
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.transaction import steps
from airflow_provider_slshudi.transaction.decisions import Decision
from airflow_provider_slshudi.transaction.settle import settle
from tests.databases import postgres
from tests.scenarios import DyingLauncher, Scenario
from tests.services import s3_store, spark_cluster


@pytest.mark.capability("PostgreSQL, a cluster and S3")
def test_batches_and_a_recommit_with_postgresql_a_cluster_and_s3(
    scenario: Callable[..., Scenario], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from hudi import HudiTableBuilder

    events = tmp_path / "events"
    events.mkdir()
    logged = {"conf": {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri()}}
    with postgres() as ledger_url, s3_store("lake") as aws, spark_cluster(aws) as cluster:
        for name, value in {**aws, "SPARK_CONF_DIR": str(cluster.settings)}.items():
            monkeypatch.setenv(name, value)
        launcher = SubprocessLauncher(cluster.master)
        checks = [{"name": "some", "batch": "count(*) > 100"}]
        location = "s3a://lake/tests/ad_events"
        pipeline = scenario(ledger_url=ledger_url, location=location, launcher=launcher, checks=checks, spark=logged)
        pipeline.put(300)
        assert pipeline.batch("run-1").state is State.COMMITTED

        pipeline.put(200, first=300)
        prepared = pipeline.prepare(pipeline.by("run-2"))
        with pytest.raises(CommitStateUnknown):
            dying = DyingLauncher(Point.COMMIT_STARTED, cluster.master)
            steps.commit(pipeline.by("run-2", launcher=dying), prepared.id, prepared.token)
        assert [item.decision for item in settle(pipeline.by("run-3"), lambda run: True)] == [Decision.RECOMMIT]

        proof = verify(pipeline.work)
        assert proof.ok and proof.rows == 500
        options = {
            "aws_endpoint": aws["AWS_ENDPOINT_URL"],
            "aws_access_key_id": aws["AWS_ACCESS_KEY_ID"],
            "aws_secret_access_key": aws["AWS_SECRET_ACCESS_KEY"],
            "aws_region": aws["AWS_REGION"],
            "aws_allow_http": "true",
        }
        table = HudiTableBuilder.from_base_uri("s3a://lake/tests/ad_events").with_storage_options(options).build()
        assert sum(batch.num_rows for batch in table.read()) == 500

        history = b"".join(file.read_bytes() for file in events.iterdir())
        assert b"slshudi.sls.half" in history
        assert pipeline.work.connect().connection.access_key_secret.reveal().encode() not in history
