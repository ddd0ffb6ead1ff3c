"""The operators one by one: a batch of upserts, what other engines are told of it, and services of its table."""

from datetime import datetime
from typing import Any

from airflow.sdk import DAG

from airflow_provider_slshudi import (
    SlsHudiAppendOperator,
    SlsHudiArchiveOperator,
    SlsHudiCleanOperator,
    SlsHudiCommitOperator,
    SlsHudiCompactOperator,
    SlsHudiDanglingSensor,
    SlsHudiMirrorOperator,
    SlsHudiOpenOperator,
    SlsHudiPlanOperator,
    SlsHudiRebuildMetadataOperator,
    SlsHudiRecordOperator,
    SlsHudiRecoverOperator,
    SlsHudiRepairOperator,
    SlsHudiSettleSensor,
    SlsHudiSyncOperator,
    SlsHudiWatchOperator,
    table_asset,
)

PIPELINE = "ad_users"

with DAG(
    "ad_users_operators",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    tags=["slshudi", f"slshudi:{PIPELINE}"],
    default_args={"pipeline": PIPELINE},
) as dag:
    dangling = SlsHudiDanglingSensor(task_id="dangling")
    recover = SlsHudiRecoverOperator(task_id="recover")

    settle = SlsHudiSettleSensor(task_id="settle")
    plan = SlsHudiPlanOperator(task_id="plan")
    planned: Any = plan.output
    batch = (
        SlsHudiOpenOperator(task_id="open", transaction=planned),
        SlsHudiAppendOperator(task_id="append", transaction=planned),
        SlsHudiRecordOperator(task_id="record", transaction=planned),
        SlsHudiCommitOperator(task_id="commit", transaction=planned, outlets=[table_asset(PIPELINE)]),
    )
    opened, appended, recorded, committed = batch

    sync = SlsHudiSyncOperator(task_id="sync")
    compact = SlsHudiCompactOperator(task_id="compact")
    mirror = SlsHudiMirrorOperator(task_id="mirror")
    clean = SlsHudiCleanOperator(task_id="clean")
    archive = SlsHudiArchiveOperator(task_id="archive")
    rebuild_metadata = SlsHudiRebuildMetadataOperator(task_id="rebuild_metadata")
    watch = SlsHudiWatchOperator(task_id="watch")
    check = SlsHudiRepairOperator(task_id="check", act="recover", reason="nothing is left undecided")

    dangling >> recover >> settle >> plan >> opened >> appended >> recorded >> committed
    committed >> [sync, compact]
    compact >> mirror >> clean >> archive >> rebuild_metadata >> watch >> check
