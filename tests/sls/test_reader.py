"""A pinned range is read to its end, whole, or not at all."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from aliyun.log import LogClient
from aliyun.log.log_logs_raw_pb2 import LogGroupListRaw

from airflow_provider_slshudi.exceptions import (
    DataExpired,
    DecodeError,
    SourceCorrupt,
    SourceRefused,
    SourceUnavailable,
)
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.local.segment import Segment
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.sls import cursors
from airflow_provider_slshudi.sls.faults import Patience
from airflow_provider_slshudi.sls.reader import Reader
from airflow_provider_slshudi.sls.service import LogService, Pull
from tests.local.sdk import PROJECT, by_ip, make_logstore, put
from tests.sls import disturbance
from tests.sls.disturbance import Disturbed

Connect = Callable[[float], LogService]


def pulls_of(service: LogService, range: Range) -> Generator[Pull, None, None]:
    return (pull for pull in Reader(service, "clicks").pulls(range))


def numbers(pulls: list[Pull]) -> list[int]:
    return [
        int(log.Contents[0].Value)
        for pull in pulls
        for group in LogGroupListRaw.FromString(pull.body).LogGroups
        for log in group.Logs
    ]


@pytest.fixture(scope="module")
def long_shard(local_sls: LocalSls) -> tuple[str, int]:
    """A logstore of one shard with 2300 log groups, numbered; and its begin."""
    client = by_ip(local_sls.connection())
    logstore = make_logstore(client, "long-shard")
    for number in range(2300):
        put(client, logstore, [b"%d" % number])
    return logstore, LogService(local_sls.connection(), PROJECT, logstore).begin(0)


@pytest.mark.parametrize(("first", "last"), [(0, 2300), (0, 1000), (7, 8), (999, 2001), (1300, 2300)])
def test_a_range_is_read_whole_whatever_its_bounds(
    local_sls: LocalSls, long_shard: tuple[str, int], first: int, last: int
) -> None:
    logstore, begin = long_shard
    pulls = list(pulls_of(LogService(local_sls.connection(), PROJECT, logstore), Range(0, begin + first, begin + last)))
    assert numbers(pulls) == list(range(first, last))
    assert [pull.begin for pull in pulls[1:]] == [pull.next for pull in pulls[:-1]]
    assert pulls[-1].next == begin + last


def test_one_pull_is_in_flight_while_the_caller_works_and_no_more(
    disturbed: Connect, way: Disturbed, long_shard: tuple[str, int]
) -> None:
    logstore, begin = long_shard
    service = disturbed(5.0)
    service.logstore = logstore
    pulls = pulls_of(service, Range(0, begin, begin + 2300))
    next(pulls)
    time.sleep(0.5)
    assert len(way.seen) == 2
    next(pulls)
    time.sleep(0.5)
    assert len(way.seen) == 3
    pulls.close()


def test_a_closed_shard_is_read_to_the_end_that_was_pinned(service: LogService, client: LogClient) -> None:
    for number in range(3):
        put(client, service.logstore, [b"%d" % number])
    client.split_shard(PROJECT, service.logstore, 0, "8" + "0" * 31)
    assert numbers(list(pulls_of(service, Range(0, service.begin(0), service.end(0))))) == [0, 1, 2]


def test_no_data_inside_a_pinned_range_is_waited_for(
    disturbed: Connect, way: Disturbed, client: LogClient, logstore: str
) -> None:
    put(client, logstore, [b"0"])
    service = disturbed(20.0)
    begin = service.begin(0)
    empty = disturbance.empty(cursors.text(begin))
    way.changes += [empty, empty]
    assert numbers(list(pulls_of(service, Range(0, begin, begin + 1)))) == [0]


def test_no_data_inside_a_pinned_range_fails_with_the_budget(service: LogService, client: LogClient) -> None:
    put(client, service.logstore, [b"0"])
    service.patience = Patience(0.7)
    begin = service.begin(0)
    pulls = pulls_of(service, Range(0, begin, begin + 2))
    assert numbers([next(pulls)]) == [0]
    with pytest.raises(SourceUnavailable, match="no log groups before the end") as error:
        next(pulls)
    assert (error.value.shard, error.value.cursor) == (0, begin + 1)


def test_a_gap_is_never_passed_over(disturbed: Connect, way: Disturbed, client: LogClient, logstore: str) -> None:
    for number in range(2):
        put(client, logstore, [b"%d" % number])
    service = disturbed(0.0)
    begin = service.begin(0)
    beyond = disturbance.headers(x_log_cursor=cursors.text(begin + 3))
    way.changes.append(beyond)
    with pytest.raises(SourceCorrupt, match="log groups are missing"):
        list(pulls_of(service, Range(0, begin, begin + 3)))
    service.patience = Patience(20.0)
    put(client, logstore, [b"2"])
    way.changes += [disturbance.fault(500, "InternalServerError"), beyond]
    assert numbers(list(pulls_of(service, Range(0, begin, begin + 3)))) == [0, 1, 2]


def test_beyond_the_end_of_a_closed_shard_is_final_and_not_nothing_yet(service: LogService, client: LogClient) -> None:
    put(client, service.logstore, [b"0"])
    begin, service.patience = service.begin(0), Patience(60.0)
    client.split_shard(PROJECT, service.logstore, 0, "8" + "0" * 31)
    pulls = pulls_of(service, Range(0, begin, begin + 2))
    assert numbers([next(pulls)]) == [0]
    with pytest.raises(SourceRefused, match="closed and ends at") as error:
        next(pulls)
    assert (error.value.code, error.value.cursor) == ("ShardEnded", begin + 1)


def test_a_body_that_does_not_decode_is_asked_for_again(
    disturbed: Connect, way: Disturbed, client: LogClient, logstore: str
) -> None:
    for number in range(3):
        put(client, logstore, [b"%d" % number])
    service = disturbed(20.0)
    begin = service.begin(0)
    way.changes.append(disturbance.hollow)
    tables = [table for _, table in Reader(service, "clicks").tables(Range(0, begin, begin + 3), ["value"])]
    assert pa.concat_tables(tables)["value"].to_pylist() == [b"0", b"1", b"2"]
    assert sum(way.at in path for path in way.seen) == 2


def test_a_body_that_never_decodes_is_an_error(
    disturbed: Connect, way: Disturbed, client: LogClient, logstore: str
) -> None:
    put(client, logstore, [b"0"])
    service = disturbed(20.0)
    begin = service.begin(0)
    way.changes += [disturbance.hollow] * 2
    with pytest.raises(DecodeError, match="no LogGroupList"):
        list(Reader(service, "clicks").tables(Range(0, begin, begin + 1), ["value"]))


def test_expired_log_groups_are_named(server_with_expiry: tuple[LogService, int]) -> None:
    service, begin = server_with_expiry
    assert service.begin(0) == begin + 4
    with pytest.raises(DataExpired) as error:
        list(pulls_of(service, Range(0, begin + 1, begin + 9)))
    assert (error.value.shard, error.value.begin, error.value.end) == (0, begin + 1, begin + 4)
    assert error.value.pipeline == "clicks"
    with pytest.raises(DataExpired) as error:
        list(pulls_of(service, Range(0, begin + 1, begin + 3)))
    assert (error.value.begin, error.value.end) == (begin + 1, begin + 3)
    assert numbers(list(pulls_of(service, Range(0, begin + 4, begin + 9)))) == [4, 5, 6, 7, 8]


@pytest.fixture
def server_with_expiry(tmp_path: Path) -> Iterator[tuple[LogService, int]]:
    """A shard of nine log groups whose first four are gone from the disk, as retention takes them."""
    server = LocalSls(tmp_path / "sls")
    with server:
        client = by_ip(server.connection())
        logstore = make_logstore(client, "expiring")
        for number in range(9):
            put(client, logstore, [b"%d" % number])
        begin = LogService(server.connection(), PROJECT, logstore).begin(0)
    (path,) = server.directory.glob(f"{PROJECT}/{logstore}/shards/0/*.groups")
    segment = Segment(path)
    path.with_name(f"{begin + 4}.groups").write_bytes(path.read_bytes()[segment._starts[4] :])
    path.unlink()
    with server:
        yield LogService(server.connection(), PROJECT, logstore, patience=Patience(5.0)), begin


def test_a_refusal_reaches_the_caller(service: LogService) -> None:
    with pytest.raises(SourceRefused) as error:
        list(pulls_of(service, Range(9, 1, 2)))
    assert error.value.code == "ShardNotExist"
