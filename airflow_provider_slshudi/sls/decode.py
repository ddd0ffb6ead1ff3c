"""A pull's protobuf bytes to a flat Arrow table, by slshudi-native where it is installed and otherwise by ptars."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

import pyarrow as pa

from airflow_provider_slshudi.sls.columns import LARGEST_TABLE, META, REST, schema
from airflow_provider_slshudi.system.native import native

_NAME = "ptars_decode" if native is None else "native_decode"
decoder = import_module(f"airflow_provider_slshudi.sls.{_NAME}")
"""The module whose `decode` is in use."""

__all__ = ["META", "REST", "decode", "schema"]


def decode(
    pull_body: bytes, shard: int, first: int, keys: Sequence[str], groups: int | None = None, most: int = LARGEST_TABLE
) -> pa.Table:
    """One row per log of a pull whose first log group has cursor `first`.

    Columns: `META`, one binary column per key (NULL where a log lacks it), `REST`. A key is a content key,
    `__tag__:NAME` for a tag of the log group, or a name of `META`, which is there anyway. A key that a log holds twice
    has its last value, and a content wins over a tag of the same name, as in the SDK's flattening; a content named like
    a column of `META` stays in `REST`. Each log has a copy of its log group's topic, source and tags.

    Args:
        pull_body: the protobuf LogGroupList.
        shard: its shard, for errors.
        first: the cursor of its first log group.
        keys: the keys that get a column of their own.
        groups: how many log groups the body must hold, None if unknown.
        most: how many bytes all those copies may take.

    Raises:
        Wide: they would take more.
        DecodeError: the body is malformed.
        ValueError: `schema` refuses the keys.

    Unlike the SDK's flattening, nanoseconds are a number, not the 1-tuple that a stray comma makes of them there, and
    each text is bytes, whether it is UTF-8 or not.
    """
    return decoder.decode(pull_body, shard, first, keys, groups, most)
