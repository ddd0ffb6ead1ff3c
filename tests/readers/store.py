"""Copies of the Hudi tables in an S3 store, for readers that take no paths of Hudi tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.services import s3_server

BUCKET = "lake"


@contextmanager
def copies(folder: Path) -> Iterator[Mapping[str, str]]:
    """A store with a copy of each table in a folder; yields its bucket's address and the key to it."""
    from pyarrow import fs

    with s3_server(BUCKET) as server:
        key = server.environment
        remote = fs.S3FileSystem(
            access_key=key["AWS_ACCESS_KEY_ID"],
            secret_key=key["AWS_SECRET_ACCESS_KEY"],
            region=key["AWS_REGION"],
            endpoint_override=key["AWS_ENDPOINT_URL"],
        )
        for table in folder.iterdir():
            if (table / ".hoodie").is_dir():
                for path in table.rglob("*"):
                    if path.is_file() and "_delta_log" not in path.parts:
                        with remote.open_output_stream(f"{BUCKET}/{path.relative_to(folder)}") as stream:
                            stream.write(path.read_bytes())
        yield {
            "address": f"{key['AWS_ENDPOINT_URL']}/{BUCKET}",
            "user": key["AWS_ACCESS_KEY_ID"],
            "secret": key["AWS_SECRET_ACCESS_KEY"],
        }
