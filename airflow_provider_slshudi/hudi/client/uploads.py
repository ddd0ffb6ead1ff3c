"""Uploads in parts that nobody goes on with: a killed task leaves their parts in the store, where they cost money.

https://docs.aws.amazon.com/AmazonS3/latest/userguide/mpuoverview.html
"""

from __future__ import annotations

import time
from datetime import timedelta

from py4j.protocol import Py4JJavaError

from airflow_provider_slshudi.hudi.client.gateway import Gateway, hadoop_path

OLD = timedelta(days=1)
"""So long no file takes to write, whatever clocks say."""
_SCHEMES = ("s3", "s3a", "s3n")


def end_old(gateway: Gateway, table: str, older: timedelta = OLD) -> int:
    """Ends uploads below a table that began longer ago than `older`, by the store's clock; returns how many.

    It says so and goes on where the store does not let it: nothing of the table depends on it.
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
                writer.abortMultipartUpload(upload)
                ended += 1
    except Py4JJavaError as error:
        reason = error.java_exception.getMessage()
        print(f"{table}: uploads that nobody goes on with could not be looked for, and stay: {reason}")
    return ended
