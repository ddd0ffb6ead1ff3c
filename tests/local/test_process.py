"""The server as a process: killed, restarted, in the way, orphaned."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from aliyun.log import LogClient

from airflow_provider_slshudi.exceptions import RuntimeMissing
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.sls import cursors
from tests.local.sdk import PROJECT, Unanswered, by_ip, make_logstore, once, put, values_of
from tests.waiting import until


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def put_until_killed(client: LogClient, logstore: str, name: bytes, acknowledged: list[bytes]) -> None:
    number = 0
    while True:
        value = b"%s-%d-%s" % (name, number, b"x" * (number % 7 * 3000))
        try:
            put(client, logstore, [value])
        except Unanswered:
            return
        acknowledged.append(value)
        number += 1


def test_acknowledged_puts_survive_sigkill_and_keep_their_cursors(server: LocalSls) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    logstore = make_logstore(by_ip(server.connection()), "survivors", shards=2)
    acknowledged: list[list[bytes]] = []
    begins: list[str] = []
    for _ in range(4):
        writers = []
        for _ in range(3):
            name = b"w%d" % len(acknowledged)
            acknowledged.append([])
            arguments = (once(server.connection()), logstore, name, acknowledged[-1])
            writers.append(threading.Thread(target=put_until_killed, args=arguments))
            writers[-1].start()
        until("puts are acknowledged", lambda: sum(map(len, acknowledged[-3:])) >= 10)
        time.sleep(rng.uniform(0.0, 0.3))
        os.kill(server.pid, signal.SIGKILL)
        for writer in writers:
            writer.join()
        server.stop()
        server.start()
        client = by_ip(server.connection())
        begins.append(client.get_begin_cursor(PROJECT, logstore, 0).get_cursor())
        kept = [value for shard in (0, 1) for (value,) in values_of(client, logstore, shard)]
        everything = [value for of_writer in acknowledged for value in of_writer]
        assert set(everything) <= set(kept)
    assert len(set(begins)) == 1


def test_a_stopped_server_continues_where_it_was(server: LocalSls) -> None:
    client = by_ip(server.connection("v4"))
    logstore = make_logstore(client, "continued", shards=1)
    client.split_shard(PROJECT, logstore, 0, "4" + "0" * 31)
    put(client, logstore, [b"first"])
    ends = [client.get_end_cursor(PROJECT, logstore, shard).get_cursor() for shard in range(3)]
    server.stop()
    server.start()
    client = by_ip(server.connection("v4"))
    assert [client.get_end_cursor(PROJECT, logstore, shard).get_cursor() for shard in range(3)] == ends
    assert client.get_logstore(PROJECT, logstore).ttl == 7
    assert client.list_shards(PROJECT, logstore).get_shards_info()[0]["status"] == "readonly"
    put(client, logstore, [b"second"])
    grown = [client.get_end_cursor(PROJECT, logstore, shard).get_cursor() for shard in range(3)]
    assert sum(map(cursors.parse, grown)) == sum(map(cursors.parse, ends)) + 1


def test_a_port_in_use_is_one_sentence_that_says_what_to_do(server: LocalSls, tmp_path: Path) -> None:
    port = int(server.endpoint.rpartition(":")[2])
    with pytest.raises(RuntimeMissing, match=rf"port {port} of 127\.0\.0\.1 .* stop what uses it or take another"):
        LocalSls(tmp_path / "other", port=port).start()


def test_a_directory_in_use_is_one_sentence_that_says_what_to_do(server: LocalSls) -> None:
    with pytest.raises(RuntimeMissing, match="is served by another process: stop that one or name another"):
        LocalSls(server.directory).start()
    by_ip(server.connection()).list_project()


def test_the_secret_is_on_no_command_line_and_in_no_repr(tmp_path: Path) -> None:
    with LocalSls(tmp_path, access_key_secret="opensesame", security_token="opentoken") as server:
        command = Path(f"/proc/{server.pid}/cmdline").read_bytes()
        for word in ("opensesame", "opentoken"):
            assert word.encode() not in command
            assert word not in repr(server) + repr(server.connection())


def test_without_a_secret_the_command_says_which_variable_to_set(tmp_path: Path) -> None:
    command: list[str | Path] = [sys.executable, "-m", "airflow_provider_slshudi.local", "--directory", tmp_path]
    command += ["--port", "0", "--access-key-id", "key"]
    environment = {name: value for name, value in os.environ.items() if name != "SLSHUDI_LOCAL_SECRET"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert "SLSHUDI_LOCAL_SECRET is not set" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ["SLSHUDI_LOCAL_SECRET", "SLSHUDI_LOCAL_SECRET_TOKEN"])
def test_a_secret_with_a_character_that_is_not_seen_is_refused_by_its_variable(name: str, tmp_path: Path) -> None:
    command: list[str | Path] = [sys.executable, "-m", "airflow_provider_slshudi.local", "--directory", tmp_path]
    command += ["--port", "0", "--access-key-id", "key"]
    given = {"SLSHUDI_LOCAL_SECRET": "opensesame", "SLSHUDI_LOCAL_STOP_WITH_STDIN": "1", name: "opensesame\n"}
    ended = subprocess.run(command, env={**os.environ, **given}, input="", capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert f"{name}: character 11 of 11" in ended.stderr and "sesame" not in ended.stderr


def test_it_ends_with_its_parent_even_when_that_is_killed(tmp_path: Path) -> None:
    script = (
        "import sys, time; from airflow_provider_slshudi.local import LocalSls\n"
        "server = LocalSls(sys.argv[1]); server.start(); print(server.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert alive(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until("the server ends", lambda: not alive(pid))
