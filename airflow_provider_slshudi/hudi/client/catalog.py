"""The table under its name in a Hive metastore, by Hudi's own sync tool (hudi.apache.org/docs/syncing_metastore)."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError

from airflow_provider_slshudi.config.pipeline import Catalog, Pipeline
from airflow_provider_slshudi.exceptions import CatalogFailed
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.objectstore import hadoop_path

_PREFIX = "hoodie.datasource.hive_sync"


def sync(gateway: Gateway, pipeline: Pipeline, catalog: Catalog) -> None:
    """Makes database and table where they are missing; brings columns and partitions up to the newest commit.

    Raises:
        CatalogFailed: the metastore does not answer, or refused.
    """
    options = {
        "hoodie.datasource.meta.sync.base.path": hadoop_path(pipeline.table.path),
        f"{_PREFIX}.mode": "hms",
        f"{_PREFIX}.metastore.uris": catalog.metastore,
        f"{_PREFIX}.database": catalog.database,
        f"{_PREFIX}.table": catalog.table or pipeline.table.name,
        # Without it timestamps would be numbers to Hive.
        f"{_PREFIX}.support_timestamp": "true",
    }
    if pipeline.table.partition is None:
        options[f"{_PREFIX}.partition_extractor_class"] = "org.apache.hudi.hive.NonPartitionedExtractor"
    else:
        options[f"{_PREFIX}.partition_fields"] = pipeline.table.partition.name
        options[f"{_PREFIX}.partition_extractor_class"] = "org.apache.hudi.hive.HiveStylePartitionValueExtractor"
    properties = gateway.jvm.java.util.Properties()
    for key, value in options.items():
        properties.setProperty(key, value)
    try:
        tool = gateway.hudi.hive.HiveSyncTool(properties, gateway.storage_conf.unwrap())
        try:
            tool.syncHoodieTable()
        finally:
            tool.close()
    except Py4JJavaError as error:
        why = gateway.jvm.org.apache.commons.lang3.exception.ExceptionUtils.getRootCauseMessage(error.java_exception)
        name = f"{catalog.database}.{catalog.table or pipeline.table.name}"
        raise CatalogFailed(
            f"{catalog.metastore} does not take table {name} of pipeline {pipeline.name}: {why}",
            pipeline=pipeline.name,
            metastore=catalog.metastore,
        ) from error
