"""A look at a logstore stays small however much the logstore holds."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import pytest
from aliyun.log import LogClient

from airflow_provider_slshudi.exceptions import SourceRefused
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.sls import sample as module
from airflow_provider_slshudi.sls.sample import MOST_LOGS, sample
from airflow_provider_slshudi.sls.service import LogService
from tests.local.sdk import PROJECT, make_logstore, put


def test_the_oldest_and_the_newest_log_groups_of_each_shard_are_looked_at(
    local_sls: LocalSls, client: LogClient
) -> None:
    logstore = make_logstore(client, "two-ends", shards=2)
    for number in range(40):
        put(client, logstore, [str(number).encode()])
    service = LogService(local_sls.connection(), PROJECT, logstore)
    heard: list[tuple[int, int]] = []
    found = sample(service, service.shards(), 3, lambda shard, groups: heard.append((shard, groups)))
    values = sorted(int(dict(log)[b"value"]) for log in found.logs["__rest__"].to_pylist())
    assert values == [0, 1, 2, 3, 4, 5, 34, 35, 36, 37, 38, 39]
    assert sorted(heard) == [(0, 6), (1, 6)]
    assert found.groups == 12 and found.bytes > 12 * len("value")
    # All of them, each once, if the ends meet.
    assert sample(service, service.shards(), 100).logs.num_rows == 40


def test_two_pulls_of_eight_shards_at_most_and_so_many_logs_of_each(local_sls: LocalSls, client: LogClient) -> None:
    logstore = make_logstore(client, "many", shards=20)
    for _ in range(40):
        put(client, logstore, [b"x"] * 50)
    service = LogService(local_sls.connection(), PROJECT, logstore)
    pulls = []

    class Counted(LogService):
        def pull(self, shard: int, *args: object, **kwargs: object):  # type: ignore[no-untyped-def]
            pulls.append(shard)
            return super().pull(shard, *args, **kwargs)  # type: ignore[arg-type]

    counted = Counted(local_sls.connection(), PROJECT, logstore)
    with patch.object(module, "MOST_LOGS", 20):
        found = sample(counted, service.shards(), 1)
    assert len(set(pulls)) == 7 and len(pulls) == 14
    # Every third log of a pull's fifty.
    assert found.groups == 14 and found.logs.num_rows == 14 * 17
    assert MOST_LOGS * 2 * module.MOST_SHARDS < 50_000


def test_an_empty_logstore_gives_no_logs(service: LogService) -> None:
    found = sample(service, service.shards(), 100)
    assert (found.logs.num_rows, found.groups, found.bytes) == (0, 0, 0)


def test_a_project_s_logstores_are_listed(local_sls: LocalSls, logstore: str) -> None:
    make: Callable[[str], LogService] = lambda project: LogService(local_sls.connection(), project, "*")  # noqa: E731
    listed = make(PROJECT).logstores()
    assert logstore in listed and listed == sorted(listed)
    with pytest.raises(SourceRefused, match=r"no-such-project/\*: list the logstores failed with ProjectNotExist"):
        make("no-such-project").logstores()
