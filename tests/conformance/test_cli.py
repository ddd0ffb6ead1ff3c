"""The command line of aliyun-log-cli, by every way of signing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aliyun.log import LogClient

from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.sls.connection import SlsConnection
from tests.conformance import cli
from tests.local.sdk import log_group


def test_the_command_line_lists_shards_and_pulls(
    server: LocalSls, connection: SlsConnection, client: LogClient, project: str, tmp_path: Path
) -> None:
    def aliyunlog(name: str, **options: object) -> Any:
        given = [f"--{key}={value}" for key, value in options.items()]
        return cli.run(server.endpoint, connection, tmp_path, name, *given)

    place = {"project_name": project, "logstore_name": "access"}
    aliyunlog("create_logstore", **place, shard_count=2, ttl=7)
    assert [shard["shardID"] for shard in aliyunlog("list_shards", **place)] == [0, 1]
    for number in range(4):
        client.put_log_raw(project, "access", log_group(b"%d" % number))
    begin = aliyunlog("get_begin_cursor", **place, shard_id=0)["cursor"]
    pulled = aliyunlog("pull_logs", **place, shard_id=0, cursor=begin, count=10)
    assert (pulled["count"], [log["value"] for log in pulled["logs"]]) == (2, ["1", "3"])
    aliyunlog("pull_log_dump", **place, from_time="begin", to_time="end", file_path=tmp_path / "dump-{}")
    lines = [line for path in tmp_path.glob("dump-*") for line in path.read_text().splitlines()]
    assert sorted(json.loads(line)["value"] for line in lines) == list("0123")
