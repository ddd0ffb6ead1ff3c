"""The table under its name in a Hive metastore, by Hudi's own sync tool (hudi.apache.org/docs/syncing_metastore)."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError

from airflow_provider_slshudi.config.pipeline import Catalog, Pipeline
from airflow_provider_slshudi.exceptions import CatalogFailed
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.storage.objectstore import hadoop_path

_PREFIX = "hoodie.datasource.hive_sync"
_SYNC, _HIVE = "org.apache.hudi.sync.common", "org.apache.hudi.hive"
_VALUES = "partitionValueExtractor"
_ESCAPING = "org.apache.hudi.common.util.PartitionPathEncodeUtils"


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
        f"{_PREFIX}.support_timestamp": str(catalog.times == "timestamp").lower(),
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
            if pipeline.table.partition is not None:
                _name_partitions_by_their_values(gateway, tool, pipeline.table.partition.name)
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


def _name_partitions_by_their_values(gateway: Gateway, tool: Any, column: str) -> None:
    """Has the tool tell `a/b` where the folder is `part=a%2Fb`: engines look for the value.

    In mode hms Hudi reads no option about it (github.com/apache/hudi/issues/13516).
    """
    values = _values_of_folders(gateway, column)
    client = _field(gateway, f"{_HIVE}.HiveSyncTool", "syncClient").get(tool)
    executor = _field(gateway, f"{_HIVE}.HoodieHiveSyncClient", "ddlExecutor").get(client)
    _field(gateway, f"{_SYNC}.HoodieSyncClient", _VALUES).set(client, values)
    _field(gateway, f"{_HIVE}.ddl.HMSDDLExecutor", _VALUES).set(executor, values)


def _field(gateway: Gateway, name: str, field: str) -> Any:
    java_field = gateway.java_class(name).getDeclaredField(field)
    java_field.setAccessible(True)
    return java_field


def _values_of_folders(gateway: Gateway, column: str) -> Any:
    """Hudi's interface for the values that a folder stands for, made of Java's and Hudi's own functions."""
    lang, invoke = gateway.jvm.java.lang, gateway.jvm.java.lang.invoke
    text, any_, several = map(gateway.java_class, ("java.lang.String", "java.lang.Object", "java.util.List"))
    handles, type_, public = invoke.MethodHandles, invoke.MethodType.methodType, invoke.MethodHandles.publicLookup()
    behind = gateway.jvm.java.util.ArrayList()
    behind.add(len(f"{column}="))
    cut = public.findVirtual(text, "substring", type_(text, lang.Integer.TYPE))
    value = handles.insertArguments(cut, 1, behind.toArray())
    unescape = public.findStatic(gateway.java_class(_ESCAPING), "unescapePathName", type_(text, text))
    one = public.findStatic(gateway.java_class("java.util.Collections"), "singletonList", type_(several, any_))
    extractor = handles.filterReturnValue(handles.filterReturnValue(value, unescape), one.asType(type_(several, text)))
    return invoke.MethodHandleProxies.asInterfaceInstance(
        gateway.java_class(f"{_SYNC}.model.PartitionValueExtractor"), extractor
    )
