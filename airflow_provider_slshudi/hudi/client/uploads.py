"""Uploads in parts that have not ended: who shuts an instant ends those of its files, so that they stay no files.

Others are those that no task goes on with: a killed task leaves their parts in the store, where they cost money.
https://docs.aws.amazon.com/AmazonS3/latest/userguide/mpuoverview.html
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from datetime import timedelta
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from airflow_provider_slshudi.exceptions import TimelineUnreadable
from airflow_provider_slshudi.hudi import markers
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.leftovers import instant_of
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.storage.objectstore import hadoop_path

OLD = timedelta(days=1)
"""No file takes so long to write, also by a clock that is wrong."""
_GONE = "java.io.FileNotFoundException"
_CANNOT = (
    "AccessDeniedException",
    "ClassNotFoundException",
    "MethodNotAllowed",
    "No FileSystem for scheme",
    "NotImplemented",
)
"""Of errors that say for good that this key, this store or this Hadoop does not list or end uploads."""
_PASSES = ("ExpiredToken", "InvalidToken", "RequestTimeTooSkewed", "TokenRefreshRequired")
"""Of refusals that S3A names as those are, and that end once the key was renewed or the clock set right."""


def end_of(gateway: Gateway, storage: Storage, instant: str, written: Collection[str] | None = None) -> int:
    """Ends the uploads of an instant's files in a table, but for those that are `written`; returns how many.

    Call it once the instant is shut. After it no file of the instant gets its name any more, be it by a task that stood
    still or by a request that was under way. The markers name all that may be uploaded. Each is asked for by its whole
    key, since MinIO lists no uploads by less (https://github.com/minio/minio/issues/11686); and all below the table at
    once, since another run's rollback may have taken the markers.

    Where the key may not list or end uploads, a rollback says so, and they stay: what becomes of them is on record, as
    the markers are (`hudi.leftovers`). An append whose tasks left nothing has nothing to ask.

    Args:
        gateway: to Hadoop's client of the store.
        storage: the table's.
        instant: the one that is shut.
        written: paths within the table that stay; None: none.

    Raises:
        TimelineUnreadable: the store does not answer; or it refuses, and the append left uploads that no record names.
    """
    if storage.renames:
        return 0
    unwritten_paths = sorted({*markers.marked(storage, instant)} - {*(written or ())})
    if written is not None and not unwritten_paths:
        return 0
    ended = 0
    try:
        store, prefix = _store(gateway, storage.uri)
        writer = store.getWriteOperationHelper()
        for key_prefix in (prefix, *(f"{prefix}{path}" for path in unwritten_paths)):
            for upload in _uploads(store, key_prefix):
                if instant_of(str(upload.getKey())) == instant:
                    ended += _ended(writer, upload)
    except Py4JError as error:
        why = f"{storage.uri}: uploads of instant {instant} could not be ended: {_reason(error)}"
        if _passes(error):
            raise TimelineUnreadable(f"{why}. The next attempt asks again", table=storage.uri) from error
        why += ". Allow s3:ListBucketMultipartUploads and s3:AbortMultipartUpload, and use Hadoop's S3A"
        if written is not None:
            why += ": tasks that stood still may yet make files of them"
            raise TimelineUnreadable(why, table=storage.uri) from error
        print(why)
    return ended


def end_old(gateway: Gateway, storage: Storage, older: timedelta = OLD) -> int:
    """Ends uploads below a table that began longer ago than `older`; returns how many.

    The store's clock says when they began, this machine's how long ago that is. What the store does not let it end is
    told, and stays: nothing of the table depends on it.
    """
    if storage.renames:
        return 0
    before, ended = time.time() - older.total_seconds(), 0
    try:
        store, prefix = _store(gateway, storage.uri)
        writer = store.getWriteOperationHelper()
        for upload in _uploads(store, prefix):
            if upload.getInitiated().getTime() / 1000 < before:
                try:
                    ended += _ended(writer, upload)
                except Py4JError as error:
                    key, why = str(upload.getKey()), _reason(error)
                    print(f"{key}: an upload that no task goes on with could not be ended, and stays: {why}")
    except Py4JError as error:
        print(f"{storage.uri}: uploads that no task goes on with could not be looked for, and stay: {_reason(error)}")
    return ended


def _store(gateway: Gateway, table: str) -> tuple[Any, str]:
    """Hadoop's file system of a table, and what the keys of its files begin with."""
    path = gateway.jvm.org.apache.hadoop.fs.Path(hadoop_path(table))
    return path.getFileSystem(gateway.storage_conf.unwrap()), str(path.toUri().getPath()).strip("/") + "/"


def _uploads(store: Any, prefix: str) -> Iterator[Any]:
    uploads = store.listUploads(prefix)
    while uploads.hasNext():
        yield uploads.next()


def _passes(error: Py4JError) -> bool:
    """Whether another attempt may not meet this error any more; a Hadoop without these methods stays without them."""
    if isinstance(error, Py4JJavaError):
        return not any(name in str(error) for name in _CANNOT) or any(name in str(error) for name in _PASSES)
    return isinstance(error, Py4JNetworkError)


def _ended(writer: Any, upload: Any) -> bool:
    """Ends an upload; False if it ended meanwhile."""
    try:
        writer.abortMultipartUpload(upload)
    except Py4JJavaError as error:
        if str(error.java_exception.getClass().getName()) != _GONE:
            raise
        return False
    return True


def _reason(error: Py4JError) -> str:
    return str(error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error)
