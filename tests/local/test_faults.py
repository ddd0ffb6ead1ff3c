"""The fault plan, seen from clients: every kind, by place, by chance, by script, changed while the server runs."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from aliyun.log import LogClient, LogException

from airflow_provider_slshudi.exceptions import ConfigError, RuntimeMissing
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.local.faultplan import Faults
from tests.local.sdk import PROJECT, Unanswered, by_ip, make_logstore, once, put, values_of


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with LocalSls(tmp_path_factory.mktemp("faulty")) as server:
        yield server


@pytest.fixture
def calm(faulty: LocalSls) -> Any:
    faulty.faults = None
    yield faulty
    faulty.faults = None


@pytest.fixture
def shard(calm: LocalSls, request: pytest.FixtureRequest) -> str:
    client = by_ip(calm.connection())
    logstore = make_logstore(client, f"shard-{time.time_ns()}")
    for number in range(4):
        put(client, logstore, [b"%d" % number * 200])
    return logstore


class Pull:
    """One pull of everything in a shard, sent once."""

    def __init__(self, server: LocalSls, logstore: str) -> None:
        self._client, self._logstore = once(server.connection()), logstore
        self._begin = by_ip(server.connection()).get_begin_cursor(PROJECT, logstore, 0).get_cursor()

    def __call__(self) -> Any:
        return self._client.pull_logs(PROJECT, self._logstore, 0, self._begin, compress=False)

    def whole(self) -> bytes:
        body: bytes = self()._raw_uncompressed_body
        return body


def rule(do: object, **more: object) -> dict[str, object]:
    return {"rules": [{"operations": "pull_logs", "do": do, "count": 1, **more}]}


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (rule("error"), '"InternalServerError"'),
        (rule("error", status=503, code="ServerBusy"), '"ServerBusy"'),
        (rule("quota"), '"ShardReadQuotaExceed"'),
        (rule("expired_token"), '"Unauthorized"'),
        (rule("deleted_shard"), '"ShardNotExist"'),
        (rule("drop"), "Connection aborted|Remote end closed|reset"),
        (rule("lose"), "Connection aborted|Remote end closed|reset"),
        (rule("cut"), "IncompleteRead|broken"),
    ],
    ids=lambda value: value["rules"][0]["do"] if isinstance(value, dict) else "",
)
def test_a_pull_fails_once_and_the_next_is_whole(calm: LocalSls, shard: str, plan: object, told: str) -> None:
    pull = Pull(calm, shard)
    whole = pull.whole()
    before = sum(calm.injected().values())
    calm.faults = plan
    with pytest.raises(Unanswered, match=told):
        pull()
    assert pull.whole() == whole
    assert sum(calm.injected().values()) == before + 1


def test_bodies_arrive_short_changed_or_empty(calm: LocalSls, shard: str) -> None:
    pull = Pull(calm, shard)
    whole = pull.whole()
    calm.faults = rule("truncate")
    short = pull()
    assert whole.startswith(short._raw_uncompressed_body) and len(short._raw_uncompressed_body) < short.get_raw_size()
    calm.faults = rule("corrupt")
    other = pull.whole()
    assert len(other) == len(whole) and other != whole
    calm.faults = rule("empty")
    empty = pull()
    assert (empty.get_loggroup_count(), empty.get_next_cursor()) == (0, pull._begin)
    calm.faults = rule("slow", seconds=0.5)
    started = time.monotonic()
    assert pull.whole() == whole
    assert time.monotonic() - started >= 0.5


def test_a_put_that_is_dropped_is_not_carried_out_and_one_that_is_lost_is(calm: LocalSls, shard: str) -> None:
    client = once(calm.connection())
    for kind, value in (("drop", b"dropped"), ("lose", b"lost"), ("cut", b"cut")):
        calm.faults = {"rules": [{"operations": "put_logs", "do": kind, "count": 1}]}
        with pytest.raises(Unanswered):
            put(client, shard, [value])
    calm.faults = None
    found = [value for (value,) in values_of(by_ip(calm.connection()), shard, 0)][4:]
    assert found == [b"lost", b"cut"]


def test_rules_hold_for_their_operation_place_and_script(calm: LocalSls, shard: str) -> None:
    other = make_logstore(by_ip(calm.connection()), f"{shard}-other")
    client = once(calm.connection())

    def outcome(call: Callable[[], object]) -> bool:
        try:
            call()
        except Unanswered:
            return False
        return True

    script = ["pass", "error", "quota", "pass", "drop"]
    calm.faults = {"rules": [{"operations": ["list_shards"], "logstore": shard, "after": 1, "do": script}]}
    assert [outcome(lambda: client.list_shards(PROJECT, other)) for _ in range(3)] == [True] * 3
    assert [outcome(lambda: client.get_begin_cursor(PROJECT, shard, 0)) for _ in range(3)] == [True] * 3
    outcomes = [outcome(lambda: client.list_shards(PROJECT, shard)) for _ in range(8)]
    assert outcomes == [True, True, False, False, True, False, True, True]
    calm.faults = {"rules": [{"shard": 1, "do": "error"}]}
    assert outcome(lambda: client.get_begin_cursor(PROJECT, shard, 0))
    assert not outcome(lambda: client.get_begin_cursor(PROJECT, shard, 1))


def test_chances_follow_the_seed(tmp_path: Path) -> None:
    def outcomes(seed: int) -> list[bool]:
        path = tmp_path / "plan.json"
        path.write_text(f'{{"seed": {seed}, "rules": [{{"do": "error", "probability": 0.2}}]}}')
        faults = Faults(path)
        return [faults.next("pull_logs", "p", "l", 0) is not None for _ in range(1000)]

    first = outcomes(1)
    assert 140 < sum(first) < 260
    assert outcomes(1) == first != outcomes(2)


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        ({"rules": [{"operations": "pul_logs", "do": "error"}]}, "no operation 'pul_logs'; there are .*pull_logs"),
        ({"rules": [{"do": "explode"}]}, "rules.0.do"),
        ("rules: [{do: error, probability: 2}]", "rules.0.probability: .*found '2'"),
        ("rules: [", "no YAML"),
    ],
)
def test_a_plan_that_is_none_says_where(calm: LocalSls, plan: object, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        calm.faults = plan


def test_a_file_that_breaks_while_the_server_runs_leaves_the_plan_before(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("rules: [{do: error}]")
    faults = Faults(path)
    path.write_text("rules: [{do: nonsense}]")
    assert faults.next("pull_logs", "p", "l", 0) is not None
    path.write_text("rules: []")
    assert faults.next("pull_logs", "p", "l", 0) is None


def test_quotas_refuse_and_recover(tmp_path: Path) -> None:
    with LocalSls(tmp_path, quotas=["shard_reads=5", "shard_write_bytes=2000"]) as server:
        client: LogClient = by_ip(server.connection())
        logstore = make_logstore(client, "limited")
        put(client, logstore, [b"x" * 3000])
        with pytest.raises(LogException, match="ShardWriteQuotaExceed"):
            put(client, logstore, [b"x"])
        begin = client.get_begin_cursor(PROJECT, logstore, 0).get_cursor()
        with pytest.raises(LogException, match="ShardReadQuotaExceed"):
            for _ in range(20):
                client.pull_logs(PROJECT, logstore, 0, begin)
        time.sleep(1.2)
        client.pull_logs(PROJECT, logstore, 0, begin)
        put(client, logstore, [b"y"])
        assert len(values_of(client, logstore, 0)) == 2
    with pytest.raises(RuntimeMissing, match="quota 'reads=5': expected NAME=NUMBER with NAME one of shard_read_bytes"):
        LocalSls(tmp_path, quotas=["reads=5"]).start()


def test_log_groups_expire_by_ttl_and_readers_go_on_at_the_oldest(tmp_path: Path) -> None:
    with LocalSls(tmp_path, day=1) as server:
        client = by_ip(server.connection())
        client.create_project(PROJECT, "")
        client.create_logstore(PROJECT, "short", ttl=2, shard_count=1)
        client.create_logstore(PROJECT, "kept", preserve_storage=True, shard_count=1)
        for logstore in ("short", "kept"):
            put(client, logstore, [b"old"])
        begin = client.get_begin_cursor(PROJECT, "short", 0).get_cursor()
        time.sleep(3.2)
        put(client, "short", [b"new"])
        assert values_of(client, "short", 0) == [[b"new"]]
        assert values_of(client, "kept", 0) == [[b"old"]]
        oldest = client.get_begin_cursor(PROJECT, "short", 0).get_cursor()
        answer = client.pull_logs(PROJECT, "short", 0, begin)
        assert oldest != begin
        assert (answer.get_loggroup_count(), answer.get_flatten_logs_json()[0]["value"]) == (1, "new")
        server.stop()
        server.start()
        assert by_ip(server.connection()).get_begin_cursor(PROJECT, "short", 0).get_cursor() >= oldest


def test_a_closed_shard_is_deleted_once_all_of_it_has_expired(tmp_path: Path) -> None:
    with LocalSls(tmp_path, day=1) as server:
        client = by_ip(server.connection())
        client.create_project(PROJECT, "")
        client.create_logstore(PROJECT, "short", ttl=2, shard_count=1)
        client.create_logstore(PROJECT, "kept", preserve_storage=True, shard_count=1)

        def shards(logstore: str) -> list[int]:
            listed = by_ip(server.connection()).list_shards(PROJECT, logstore).get_shards_info()
            return [shard["shardID"] for shard in listed]

        for logstore in ("short", "kept"):
            client.split_shard(PROJECT, logstore, 0, "8" + "0" * 31)
        assert shards("short") == [0, 1, 2]
        server.stop()
        server.start()
        time.sleep(3.2)
        assert shards("short") == [1, 2]
        assert shards("kept") == [0, 1, 2]


def test_bodies_without_an_announced_length_and_endless_heads_are_bounded(calm: LocalSls) -> None:
    def endless() -> Any:
        for _ in range(1000):
            yield b"x" * 100_000

    try:
        status = requests.post(f"http://{calm.endpoint}/logstores/a/shards/lb", data=endless(), timeout=20).status_code
    except requests.ConnectionError:
        status = 413  # it was told and closed while still sending
    assert status == 413
    host, _, port = calm.endpoint.rpartition(":")
    way = http.client.HTTPConnection(host, int(port), timeout=20)
    way.connect()
    with pytest.raises(ConnectionError):
        way.send(b"GET / HTTP/1.1\r\nx: ")
        for _ in range(1000):
            way.send(b"y" * 10_000)
    way.close()
    by_ip(calm.connection()).list_project()
