"""Uploads in parts that have not ended: who shuts an instant ends those of its files, so that they stay no files.

Others are those that nobody goes on with: a killed task leaves their parts in the store, where they cost money.
https://docs.aws.amazon.com/AmazonS3/latest/userguide/mpuoverview.html
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from airflow_provider_slshudi.exceptions import TimelineUnreadable
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.leftovers import instant_of
from airflow_provider_slshudi.objectstore import hadoop_path, is_stored

OLD = timedelta(days=1)
"""So long no file takes to write, whatever clocks say."""
_SCHEMES = ("s3", "s3a", "s3n")
_DENIED, _GONE = "java.nio.file.AccessDeniedException", "java.io.FileNotFoundException"


def end_of(gateway: Gateway, table: str, instant: str) -> int:
    """Ends the uploads of an instant's files below a table; returns how many. Call it once the instant is shut.

    After it no file of the instant gets its name any more, be it by a task that stood still or by a request that was
    under way. Where the store does not let this key list or end uploads, it says so, and they stay: a file that one of
    them becomes is on record, as its marker is (`hudi.leftovers`).

    Raises:
        TimelineUnreadable: the store does not answer; uploads may be left.
    """
    if not is_stored(table):
        return 0
    ended, upload = 0, None
    try:
        store, prefix = _store(gateway, table)
        writer = store.getWriteOperationHelper()
        for upload in _uploads(store, prefix):
            if instant_of(str(upload.getKey())) == instant:
                ended += _ended(writer, upload)
    except Py4JError as error:
        key = table if upload is None else str(upload.getKey())
        if not _is(error, _DENIED):
            raise TimelineUnreadable(
                f"{key}: uploads of instant {instant} could not be ended: {_reason(error)}", table=table
            ) from error
        print(
            f"{key}: the store refuses to list or end uploads, so those of instant {instant} stay: {_reason(error)}. "
            "Allow s3:ListBucketMultipartUploads and s3:AbortMultipartUpload"
        )
    return ended


def end_old(gateway: Gateway, table: str, older: timedelta = OLD) -> int:
    """Ends uploads below a table that began longer ago than `older`; returns how many.

    The store's clock says when they began, this machine's how long ago that is. What the store does not let it end is
    told, and stays: nothing of the table depends on it.
    """
    store, prefix = _store(gateway, table)
    if str(store.getScheme()) not in _SCHEMES:
        return 0
    before, ended = time.time() - older.total_seconds(), 0
    try:
        writer = store.getWriteOperationHelper()
        for upload in _uploads(store, prefix):
            if upload.getInitiated().getTime() / 1000 < before:
                try:
                    ended += _ended(writer, upload)
                except Py4JError as error:
                    key, why = upload.getKey(), _reason(error)
                    print(f"{key}: an upload that nobody goes on with could not be ended, and stays: {why}")
    except Py4JError as error:
        print(f"{table}: uploads that nobody goes on with could not be looked for, and stay: {_reason(error)}")
    return ended


def _store(gateway: Gateway, table: str) -> tuple[Any, str]:
    """Hadoop's file system of a table, and what the keys of its files begin with."""
    path = gateway.jvm.org.apache.hadoop.fs.Path(hadoop_path(table))
    return path.getFileSystem(gateway.storage_conf.unwrap()), str(path.toUri().getPath()).strip("/") + "/"


def _uploads(store: Any, prefix: str) -> Iterator[Any]:
    found = store.listUploads(prefix)
    while found.hasNext():
        yield found.next()


def _ended(writer: Any, upload: Any) -> bool:
    """Ends an upload; False if it ended meanwhile."""
    try:
        writer.abortMultipartUpload(upload)
    except Py4JJavaError as error:
        if _is(error, _GONE):
            return False
        raise
    return True


def _is(error: Py4JError, kind: str) -> bool:
    return isinstance(error, Py4JJavaError) and str(error.java_exception.getClass().getName()) == kind


def _reason(error: Py4JError) -> str:
    return str(error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error)
