"""Several logstores as one service: each shard is asked of its own logstore, under its number."""

from __future__ import annotations

from uuid import uuid4

import pytest
from aliyun.log import LogClient

from airflow_provider_slshudi.exceptions import SourceCorrupt, SourceRefused
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.sls.connection import connections_of
from airflow_provider_slshudi.sls.faults import PERSON
from airflow_provider_slshudi.sls.logstores import Logstores, service_of
from airflow_provider_slshudi.sls.reader import Reader
from airflow_provider_slshudi.sls.service import LogService
from tests.local.sdk import PROJECT, make_logstore, put


@pytest.fixture
def names(client: LogClient) -> list[str]:
    """Two logstores, each with a log in its second shard's place or its only one."""
    made = [make_logstore(client, f"logs-{uuid4().hex[:12]}", shards) for shards in (2, 1)]
    put(client, made[0], [b"first"])
    put(client, made[1], [b"second", b"third"])
    return made


@pytest.fixture
def both(local_sls: LocalSls, names: list[str]) -> LogService:
    return service_of([(PROJECT, name, 0) for name in names], [local_sls.connection()])


def test_one_logstore_is_the_plain_service(local_sls: LocalSls, names: list[str]) -> None:
    alone = service_of([(PROJECT, names[0], 0)], [local_sls.connection()], PERSON)
    assert not isinstance(alone, Logstores) and alone.patience is PERSON and alone.of_shard(7) is alone


def test_shards_are_numbered_by_the_place_of_their_logstore(both: LogService) -> None:
    assert [shard.id for shard in both.shards()] == [0, 1, 1_000_000]
    assert both.listed is not None and both.requests == 2
    assert both.retention() is not None


def test_each_shard_is_read_from_its_own_logstore(both: LogService) -> None:
    read = dict[int, list[bytes]]()
    for shard in both.shards():
        begin, end = both.begin(shard.id), both.end(shard.id)
        assert both.at(shard.id, 0) == begin and both.end_if_there(shard.id) == end
        if begin == end:
            continue
        assert both.received(shard.id, begin) > 0
        for pull, logs in Reader(both, "p").tables(Range(shard.id, begin, end), ["value"]):
            assert pull.shard == shard.id
            read.setdefault(shard.id // 1_000_000, []).extend(logs["value"].to_pylist())
    assert read == {0: [b"first"], 1: [b"second", b"third"]}


def test_a_number_of_no_logstore_is_no_shard(both: LogService) -> None:
    with pytest.raises(SourceRefused, match=r"no shard 2000000: its number is of none of the 2 logstores"):
        both.begin(2_000_000)
    assert both.end_if_there(2_000_000) is None and both.end_if_there(1_000_009) is None


def test_errors_name_the_logstore_its_own_id_and_the_number(both: LogService, names: list[str]) -> None:
    with pytest.raises(
        SourceRefused, match=rf"{PROJECT}/{names[1]} shard 9 \(number 1000009\): cursor of begin"
    ) as error:
        both.begin(1_000_009)
    assert error.value.logstore == names[1]
    assert f"{names[0]} shard 1 cursor 5: x" in str(both.error(SourceRefused, "x", 1, 5))


def test_patience_is_one_for_all(both: LogService) -> None:
    both.patience = PERSON
    assert both.of_shard(0).patience is both.of_shard(1_000_000).patience is PERSON


def test_ids_that_would_be_numbers_of_another_logstore_are_refused(
    both: LogService, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    first = both.of_shard(0)
    listed = [replace(shard, id=1_000_000) for shard in first.shards()[:1]]
    monkeypatch.setattr(first, "shards", lambda: listed)
    with pytest.raises(SourceCorrupt, match="ids below 1000000 alone"):
        both.shards()


def test_connections_travel_in_their_order(local_sls: LocalSls, names: list[str]) -> None:
    from dataclasses import replace

    mine = local_sls.connection()
    theirs = replace(mine, access_key_id="other")
    service = service_of([(PROJECT, names[0], 0), (PROJECT, names[1], 1)], [mine, theirs])
    variables = service.to_env()
    assert connections_of({**variables, "PATH": "/bin"}) == [mine, theirs]
    assert connections_of(mine.to_env()) == [mine]
    assert "SLSHUDI_SLS_ACCESS_KEY_SECRET_1" in variables and mine.access_key_secret.reveal() not in repr(variables)
