"""Counts the logs of each log group of a pull without parsing them."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError as NotParsed

from airflow_provider_slshudi.exceptions import DecodeError
from airflow_provider_slshudi.sls.answers import Pull


def _list_class() -> Any:
    """A LogGroupList (`wire`) with logs as bytes, so that the parser skips their content."""
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="slshudi.counts.proto", package="slshudi.counts")
    group, list_ = file.message_type.add(name="Group"), file.message_type.add(name="List")
    group.field.add(name="Logs", number=1, label=kind.LABEL_REPEATED, type=kind.TYPE_BYTES)
    groups = list_.field.add(name="LogGroups", number=1, label=kind.LABEL_REPEATED, type=kind.TYPE_MESSAGE)
    groups.type_name = ".slshudi.counts.Group"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("slshudi.counts.List"))


_List = _list_class()


def count_logs(pull: Pull) -> list[int]:
    """The number of logs of each log group, in the order of their cursors.

    Raises:
        DecodeError: the body is no LogGroupList.
    """
    try:
        parsed = _List.FromString(pull.body)
    except NotParsed as error:
        raise DecodeError(
            f"shard {pull.shard} cursor {pull.begin}: {len(pull.body)} bytes are no LogGroupList: {error}",
            shard=pull.shard,
            cursor=pull.begin,
        ) from error
    return [len(group.Logs) for group in parsed.LogGroups]
