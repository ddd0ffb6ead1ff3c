"""Alibaba Cloud SLS logs into an Apache Hudi table, exactly once, one Airflow DAG run per transaction.

The names that DAG files use can be imported from here. Each is imported once it is asked for, since executors and
drivers import this package without Airflow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider_slshudi.config.pipeline import Pipeline as Pipeline
    from airflow_provider_slshudi.dag.factories import fleet_dag as fleet_dag
    from airflow_provider_slshudi.dag.factories import micro_batch as micro_batch
    from airflow_provider_slshudi.dag.factories import tail_dag as tail_dag
    from airflow_provider_slshudi.dag.factories import watch_dag as watch_dag
    from airflow_provider_slshudi.dag.operations import backfill_dag as backfill_dag
    from airflow_provider_slshudi.dag.operations import maintenance_dag as maintenance_dag
    from airflow_provider_slshudi.dag.operations import operations_dag as operations_dag
    from airflow_provider_slshudi.dag.operations import override_dag as override_dag
    from airflow_provider_slshudi.dag.operations import recovery_dag as recovery_dag
    from airflow_provider_slshudi.dag.operations import repair_dag as repair_dag
    from airflow_provider_slshudi.dag.operations import verify_dag as verify_dag
    from airflow_provider_slshudi.hooks.consumer_changes import SlsHudiChangesHook as SlsHudiChangesHook
    from airflow_provider_slshudi.hooks.iceberg import IcebergHook as IcebergHook
    from airflow_provider_slshudi.hooks.ledger import LedgerHook as LedgerHook
    from airflow_provider_slshudi.hooks.sls import SlsHook as SlsHook
    from airflow_provider_slshudi.operators.backfill import SlsHudiBackfillPlanOperator as SlsHudiBackfillPlanOperator
    from airflow_provider_slshudi.operators.backfill import SlsHudiBackfillRestOperator as SlsHudiBackfillRestOperator
    from airflow_provider_slshudi.operators.batch import SlsHudiAppendOperator as SlsHudiAppendOperator
    from airflow_provider_slshudi.operators.batch import SlsHudiCommitOperator as SlsHudiCommitOperator
    from airflow_provider_slshudi.operators.batch import SlsHudiOpenOperator as SlsHudiOpenOperator
    from airflow_provider_slshudi.operators.batch import SlsHudiPlanOperator as SlsHudiPlanOperator
    from airflow_provider_slshudi.operators.batch import SlsHudiRecordOperator as SlsHudiRecordOperator
    from airflow_provider_slshudi.operators.consumers import SlsHudiChangesOperator as SlsHudiChangesOperator
    from airflow_provider_slshudi.operators.consumers import SlsHudiConfirmOperator as SlsHudiConfirmOperator
    from airflow_provider_slshudi.operators.consumers import SlsHudiPartitionsOperator as SlsHudiPartitionsOperator
    from airflow_provider_slshudi.operators.events import partitions_asset as partitions_asset
    from airflow_provider_slshudi.operators.events import table_asset as table_asset
    from airflow_provider_slshudi.operators.fleet import SlsHudiBatchOperator as SlsHudiBatchOperator
    from airflow_provider_slshudi.operators.fleet import SlsHudiDrainOperator as SlsHudiDrainOperator
    from airflow_provider_slshudi.operators.fleet import SlsHudiLookOperator as SlsHudiLookOperator
    from airflow_provider_slshudi.operators.maintenance import SlsHudiArchiveOperator as SlsHudiArchiveOperator
    from airflow_provider_slshudi.operators.maintenance import SlsHudiCleanOperator as SlsHudiCleanOperator
    from airflow_provider_slshudi.operators.maintenance import SlsHudiClusterOperator as SlsHudiClusterOperator
    from airflow_provider_slshudi.operators.maintenance import SlsHudiCompactOperator as SlsHudiCompactOperator
    from airflow_provider_slshudi.operators.maintenance import SlsHudiMirrorOperator as SlsHudiMirrorOperator
    from airflow_provider_slshudi.operators.maintenance import (
        SlsHudiRebuildMetadataOperator as SlsHudiRebuildMetadataOperator,
    )
    from airflow_provider_slshudi.operators.maintenance import SlsHudiSyncOperator as SlsHudiSyncOperator
    from airflow_provider_slshudi.operators.maintenance import SlsHudiVerifyOperator as SlsHudiVerifyOperator
    from airflow_provider_slshudi.operators.repair import SlsHudiRecoverOperator as SlsHudiRecoverOperator
    from airflow_provider_slshudi.operators.repair import SlsHudiRepairOperator as SlsHudiRepairOperator
    from airflow_provider_slshudi.operators.watch import SlsHudiWatchOperator as SlsHudiWatchOperator
    from airflow_provider_slshudi.sensors.ledger_sensors import SlsHudiChangesSensor as SlsHudiChangesSensor
    from airflow_provider_slshudi.sensors.ledger_sensors import SlsHudiPartitionSensor as SlsHudiPartitionSensor
    from airflow_provider_slshudi.sensors.settle import SlsHudiDanglingSensor as SlsHudiDanglingSensor
    from airflow_provider_slshudi.sensors.settle import SlsHudiSettleSensor as SlsHudiSettleSensor
    from airflow_provider_slshudi.triggers.ledger import ChangesTrigger as ChangesTrigger
    from airflow_provider_slshudi.triggers.ledger import PartitionTrigger as PartitionTrigger
    from airflow_provider_slshudi.triggers.ledger import SettleTrigger as SettleTrigger

__version__ = "0.1.0"
_STEPS = ("Append", "Commit", "Open", "Plan", "Record")
_SERVICES = ("Archive", "Clean", "Cluster", "Compact", "Mirror", "RebuildMetadata", "Sync", "Verify")
_DAGS = ("fleet", "tail", "watch")
_OPERATIONS = ("backfill", "maintenance", "operations", "override", "recovery", "repair", "verify")
_NAMES: dict[str, tuple[str, ...]] = {
    "config.pipeline": ("Pipeline",),
    "dag.factories": (*(f"{name}_dag" for name in _DAGS), "micro_batch"),
    "dag.operations": tuple(f"{name}_dag" for name in _OPERATIONS),
    "hooks.consumer_changes": ("SlsHudiChangesHook",),
    "hooks.iceberg": ("IcebergHook",),
    "hooks.ledger": ("LedgerHook",),
    "hooks.sls": ("SlsHook",),
    "operators.backfill": ("SlsHudiBackfillPlanOperator", "SlsHudiBackfillRestOperator"),
    "operators.consumers": tuple(f"SlsHudi{name}Operator" for name in ("Changes", "Confirm", "Partitions")),
    "operators.events": ("partitions_asset", "table_asset"),
    "operators.fleet": ("SlsHudiBatchOperator", "SlsHudiDrainOperator", "SlsHudiLookOperator"),
    "operators.maintenance": tuple(f"SlsHudi{name}Operator" for name in _SERVICES),
    "operators.repair": ("SlsHudiRecoverOperator", "SlsHudiRepairOperator"),
    "operators.batch": tuple(f"SlsHudi{name}Operator" for name in _STEPS),
    "operators.watch": ("SlsHudiWatchOperator",),
    "sensors.ledger_sensors": ("SlsHudiChangesSensor", "SlsHudiPartitionSensor"),
    "sensors.settle": ("SlsHudiDanglingSensor", "SlsHudiSettleSensor"),
    "triggers.ledger": ("ChangesTrigger", "PartitionTrigger", "SettleTrigger"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = ["__version__", *sorted(_MODULES)]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
