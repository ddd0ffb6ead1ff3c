"""Uploads in parts that nobody goes on with: a killed task leaves their parts in the store, where they cost money.

https://docs.aws.amazon.com/AmazonS3/latest/userguide/mpuoverview.html
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.objectstore import hadoop_path

OLD = timedelta(days=1)
"""So long no file takes to write, whatever clocks say."""
_SCHEMES = ("s3", "s3a", "s3n")


def end_old(gateway: Gateway, table: str, older: timedelta = OLD) -> int:
    """Ends uploads below a table that began longer ago than `older`; returns how many.

    The store's clock says when they began, this machine's how long ago that is. What the store does not let it end is
    told, and stays: nothing of the table depends on it.
    """
    path = gateway.jvm.org.apache.hadoop.fs.Path(hadoop_path(table))
    store = path.getFileSystem(gateway.storage_conf.unwrap())
    if str(store.getScheme()) not in _SCHEMES:
        return 0
    prefix, before, ended = str(path.toUri().getPath()).strip("/") + "/", time.time() - older.total_seconds(), 0
    try:
        found, writer = store.listUploads(prefix), store.getWriteOperationHelper()
        while found.hasNext():
            upload = found.next()
            if upload.getInitiated().getTime() / 1000 < before:
                ended += _end(writer, upload)
    except Py4JError as error:
        print(f"{table}: uploads that nobody goes on with could not be looked for, and stay: {_reason(error)}")
    return ended


def _end(writer: Any, upload: Any) -> bool:
    try:
        writer.abortMultipartUpload(upload)
    except Py4JError as error:
        print(f"{upload.getKey()}: an upload that nobody goes on with could not be ended, and stays: {_reason(error)}")
        return False
    return True


def _reason(error: Py4JError) -> str:
    return str(error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error)
