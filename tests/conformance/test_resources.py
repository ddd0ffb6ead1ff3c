"""Projects, logstores, shards and consumer groups, by every way of signing."""

from __future__ import annotations

import time
from functools import partial
from uuid import uuid4

import pytest
from aliyun.log import ListLogstoresRequest, LogClient

from tests.conformance.conftest import Refusal
from tests.local.sdk import log_group
from tests.waiting import until

HALF = "8" + "0" * 31


def test_projects(client: LogClient, refused: Refusal) -> None:
    name, words = f"made-{uuid4().hex[:12]}", uuid4().hex
    client.create_project(name, "first words", resource_group_id="group-a")
    assert refused(lambda: client.create_project(name, "")) == (400, "ProjectAlreadyExist")
    assert client.get_project(name).get_description() == "first words"
    client.update_project(name, words)
    assert client.get_project(name).get_description() == words
    for listed in (
        client.list_project(project_name_pattern=name),
        client.list_project(description=words[:20]),
        client.list_project(size=-1, project_name_pattern=name, resource_group_id="group-a"),
    ):
        assert [project["projectName"] for project in listed.get_projects()] == [name]
    assert client.list_project(project_name_pattern=name, resource_group_id="group-b").get_total() == 0
    client.delete_project(name)
    assert refused(lambda: client.get_project(name)) == (404, "ProjectNotExist")
    assert refused(lambda: client.update_project(name, "")) == (404, "ProjectNotExist")


def test_logstores(client: LogClient, project: str, refused: Refusal) -> None:
    client.create_logstore(project, "one", ttl=3, shard_count=3, enable_tracking=True, max_split_shard=8, hot_ttl=7)
    client.create_logstore(project, "two", preserve_storage=True, auto_split=False, append_meta=True, mode="lite")
    assert refused(lambda: client.create_logstore(project, "two")) == (400, "LogStoreAlreadyExist")
    one, two = client.get_logstore(project, "one"), client.get_logstore(project, "two")
    assert (one.ttl, one.shard_count, one.enable_tracking, one.max_split_shard, one.hot_ttl) == (3, 3, True, 8, 7)
    assert (two.ttl, two.preserve_storage, two.auto_split, two.append_meta, two.mode) == (
        3650,
        True,
        False,
        True,
        "lite",
    )
    client.update_logstore(project, "one", ttl=90, auto_split=False)
    one = client.get_logstore(project, "one")
    assert (one.ttl, one.shard_count, one.enable_tracking, one.auto_split) == (90, 3, True, False)
    assert client.list_logstore(project).get_logstores() == ["one", "two"]
    assert client.list_logstore(project, "w").get_logstores() == ["two"]
    assert client.list_logstore(project, offset=1, size=5).get_logstores() == ["two"]
    assert client.list_logstores(ListLogstoresRequest(project)).get_logstores() == ["one", "two"]
    client.delete_logstore(project, "one")
    assert refused(lambda: client.get_logstore(project, "one")) == (404, "LogStoreNotExist")
    assert refused(lambda: client.create_logstore(project, "Bad name")) == (400, "ParameterInvalid")
    assert refused(lambda: client.create_logstore(project, "bad", ttl=0)) == (400, "ParameterInvalid")
    assert refused(lambda: client.update_logstore(project, "two", ttl=99999)) == (400, "ParameterInvalid")


def test_shards_split_merge_and_delete(client: LogClient, project: str, logstore: str, refused: Refusal) -> None:
    def shards() -> dict[int, str]:
        return {shard["shardID"]: shard["status"] for shard in client.list_shards(project, logstore).get_shards_info()}

    assert shards() == {0: "readwrite"}
    assert refused(lambda: client.delete_shard(project, logstore, 0)) == (400, "ParameterInvalid")
    new = client.split_shard(project, logstore, 0, HALF).get_shards_info()
    assert [(shard["shardID"], shard["inclusiveBeginKey"]) for shard in new] == [
        (0, "0" * 32),
        (1, "0" * 32),
        (2, HALF),
    ]
    client.merge_shard(project, logstore, 1)
    assert shards() == {0: "readonly", 1: "readonly", 2: "readonly", 3: "readwrite"}
    client.delete_shard(project, logstore, 0)
    client.delete_shard(project, logstore, 2)
    assert shards() == {1: "readonly", 3: "readwrite"}
    assert refused(lambda: client.get_begin_cursor(project, logstore, 0)) == (400, "ShardNotExist")
    assert refused(lambda: client.delete_shard(project, logstore, 0)) == (400, "ShardNotExist")
    client.split_shard(project, logstore, 3, HALF)
    assert sorted(shards()) == [1, 3, 4, 5]


def test_consumer_groups(client: LogClient, project: str, logstore: str, refused: Refusal) -> None:
    def groups() -> list[tuple[str, int, bool]]:
        listed = client.list_consumer_group(project, logstore).get_consumer_groups()
        return [(group.get_consumer_group_name(), group.get_timeout(), group.is_in_order()) for group in listed]

    assert groups() == []
    client.create_consumer_group(project, logstore, "readers", 30, in_order=True)
    client.create_consumer_group(project, logstore, "others", 10)
    assert groups() == [("others", 10, False), ("readers", 30, True)]
    again = (400, "ConsumerGroupAlreadyExist")
    assert refused(lambda: client.create_consumer_group(project, logstore, "readers", 30)) == again
    assert refused(lambda: client.create_consumer_group(project, logstore, "bad", "soon")) == (400, "JsonInfoInvalid")
    client.update_consumer_group(project, logstore, "readers", timeout=60)
    client.update_consumer_group(project, logstore, "others", in_order=True)
    client.update_consumer_group(project, logstore, "others", timeout=20, in_order=False)
    assert groups() == [("others", 20, False), ("readers", 60, True)]
    client.delete_consumer_group(project, logstore, "others")
    assert [name for name, *_ in groups()] == ["readers"]
    for call in (client.delete_consumer_group, client.get_check_point):
        assert refused(partial(call, project, logstore, "others")) == (404, "ConsumerGroupNotExist")


def test_checkpoints(client: LogClient, project: str, logstore: str, refused: Refusal) -> None:
    client.put_log_raw(project, logstore, log_group(b"a"))
    client.create_consumer_group(project, logstore, "readers", 30)
    (fresh,) = client.get_check_point(project, logstore, "readers").get_consumer_group_check_points()
    assert (fresh["shard"], fresh["checkpoint"]) == (0, "")
    end = client.get_end_cursor(project, logstore, 0).get_cursor()
    client.update_check_point(project, logstore, "readers", 0, end, consumer="me")
    (kept,) = client.get_check_point(project, logstore, "readers", 0).get_consumer_group_check_points()
    assert (kept["shard"], kept["checkpoint"], kept["consumer"]) == (0, end, "me")
    assert abs(kept["updateTime"] / 1e6 - time.time()) < 60
    (fixed,) = client.get_check_point_fixed(project, logstore, "readers").get_consumer_group_check_points()
    assert abs(fixed["checkpoint_previous_cursor_time"] - time.time()) < 60
    assert client.get_check_point(project, logstore, "readers", 7).get_consumer_group_check_points() == []

    def update(shard: int, checkpoint: str, consumer: str = "", force: bool = True) -> tuple[int, str]:
        return refused(
            lambda: client.update_check_point(project, logstore, "readers", shard, checkpoint, consumer, force)
        )

    assert update(7, end) == (404, "ShardNotExist")
    assert update(0, "no base64!") == (400, "InvalidShardCheckPoint")
    assert update(0, end, "nobody", force=False) == (404, "ConsumerNotExsit")
    client.heart_beat(project, logstore, "readers", "one", [])
    client.heart_beat(project, logstore, "readers", "two", [])
    assert update(0, end, "two", force=False) == (400, "ConsumerNotMatch")
    client.update_check_point(project, logstore, "readers", 0, end, "one", force_success=False)


def test_heartbeats_share_the_shards(client: LogClient, project: str, refused: Refusal) -> None:
    client.create_logstore(project, "wide", shard_count=4)
    client.create_consumer_group(project, "wide", "readers", 1)

    def beat(consumer: str, *holds: int) -> list[int]:
        shards: list[int] = client.heart_beat(project, "wide", "readers", consumer, list(holds)).get_shards()
        return shards

    assert refused(lambda: beat("one", 0)) == (400, "NotExistConsumerWithBody")
    assert beat("one") == [0, 1, 2, 3]
    assert beat("two") == []
    assert beat("one", 0, 1, 2, 3) == [0, 1]
    assert beat("two") == []
    assert beat("one", 0, 1) == [0, 1]
    assert beat("two") == [2, 3]
    until("the silent consumer's shards are the other's", lambda: beat("two", 2, 3) == [0, 1, 2, 3])


@pytest.mark.parametrize("path", ["list_machine_group", "list_savedsearch"])
def test_what_is_not_offered_says_so(client: LogClient, project: str, refused: Refusal, path: str) -> None:
    assert refused(lambda: getattr(client, path)(project)) == (405, "InvalidMethod")
