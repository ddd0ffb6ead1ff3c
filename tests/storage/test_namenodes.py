"""Which name node is asked first, and how Hadoop's settings name it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from airflow_provider_slshudi.exceptions import TableError
from airflow_provider_slshudi.storage import hdfs, namenodes
from tests.hadoop import service, tell

SITE = "<configuration>{}</configuration>"
NOBODY = "127.0.0.1:1"


@pytest.fixture
def listens() -> Iterator[str]:
    """The address of somebody who listens."""
    with socket.create_server(("127.0.0.1", 0)) as node:
        yield f"127.0.0.1:{node.getsockname()[1]}"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    return tmp_path


def order() -> list[str]:
    return namenodes.settings("lake")["dfs.ha.namenodes.lake"].split(",")


def test_a_node_that_listens_comes_first_and_otherwise_the_order_is_hadoops(folder: Path, listens: str) -> None:
    tell(folder, service("lake", {"a": NOBODY, "b": NOBODY, "c": listens, "d": NOBODY}))
    assert order() == ["c", "a", "b", "d"]
    made = namenodes.settings("lake")
    assert made["dfs.client.failover.max.attempts"] == "24"
    assert made["dfs.client.failover.random.order.lake"] == "false"
    assert namenodes.settings("127.0.0.1:8020") == {"dfs.client.failover.max.attempts": "6"}


def test_a_machine_that_is_switched_off_costs_seconds(folder: Path, listens: str) -> None:
    # Its queue of connections is full, so it answers as little as a machine that is off.
    with socket.socket() as off, socket.socket() as waiting:
        off.bind(("127.0.0.1", 0))
        off.listen(0)
        waiting.connect(off.getsockname())
        address = f"127.0.0.1:{off.getsockname()[1]}"
        tell(folder, service("lake", {"off": address, "on": listens}))
        began = monotonic()
        assert order() == ["on", "off"]
        assert 1 < monotonic() - began < 30


def test_blanks_and_variables_are_read_as_java_reads_them(folder: Path, listens: str) -> None:
    host, _, port = listens.partition(":")
    tell(folder, {"my.host": host, "my.port": " ${my.other} ", "my.other": port}, "core-site.xml")
    nodes = service("lake", {"a": NOBODY, "b": " ${my.host}:${my.other}\n"})
    tell(folder, nodes | {"dfs.ha.namenodes.lake": " a\n b ,"})
    assert order() == ["b", "a"]
    assert namenodes.settings("lake")["dfs.namenode.rpc-address.lake.b"] == listens


@pytest.mark.parametrize(
    ("nodes", "key"),
    [
        ({"a\u200b": NOBODY}, "dfs.ha.namenodes.lake"),
        ({"a": "127.0.0.1\u200b:1"}, "dfs.namenode.rpc-address.lake.a"),
    ],
)
def test_a_character_that_is_not_seen_is_told_by_its_setting(folder: Path, nodes: dict[str, str], key: str) -> None:
    tell(folder, service("lake", nodes))
    with pytest.raises(OSError, match=rf"{key} in Hadoop's settings: character .* is U\+200B"):
        order()


@pytest.mark.parametrize("name", ["HADOOP_USER_NAME", "HADOOP_CONF_DIR"])
def test_a_variable_of_hadoops_with_such_a_character_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "opensesame\n")
    with pytest.raises(TableError, match=f"variable {name}: character 11 of 11") as refused:
        hdfs.filesystem("hdfs://lake/clicks")
    assert "sesame" not in str(refused.value)


def test_a_node_whose_address_java_alone_knows_is_left_out(
    folder: Path, listens: str, caplog: pytest.LogCaptureFixture
) -> None:
    unknown = "${env.NODE}:8020"
    tell(folder, service("lake", {"a": unknown, "b": listens}))
    assert order() == ["b"]
    assert "rpc-address.lake.a in Hadoop's settings is '${env.NODE}:8020'" in caplog.text
    tell(folder, service("lake", {"a": unknown}))
    with pytest.raises(OSError, match=r"client does not know \$\{env.NODE\}, as Java may: write the value itself"):
        namenodes.settings("lake")
    tell(folder, service("lake", {"a": "${x}"}) | {"x": "${y}${y}", "y": "${x}"})
    with pytest.raises(OSError, match=r"does not know \$\{x\}"):
        namenodes.settings("lake")


def test_what_is_final_stays_and_what_has_no_value_changes_nothing(folder: Path, listens: str) -> None:
    final = f"<value>{listens}</value><final>true</final>"
    site = "<property><name>dfs.namenode.rpc-address.lake.a</name>{}</property>".format
    (folder / "core-site.xml").write_text(SITE.format(site(final)))
    names = "<property><name>dfs.ha.namenodes.lake</name><value>a</value></property>"
    (folder / "hdfs-site.xml").write_text(
        SITE.format(names + site("<value>other:1</value>") + site("") + site("<value/>"))
    )
    assert namenodes.settings("lake")["dfs.namenode.rpc-address.lake.a"] == listens


def test_a_value_may_say_what_names_another_file_elsewhere(folder: Path, listens: str) -> None:
    tell(folder, service("lake", {"a": listens}) | {"dfs.hosts": "/etc/dfs.include"})
    assert order() == ["a"]


def test_lots_are_drawn_where_hadoop_draws_them(folder: Path) -> None:
    nodes = service("lake", dict.fromkeys("abcdefgh", NOBODY))
    tell(folder, nodes | {"dfs.client.failover.random.order.lake": " TRUE "})
    assert len({tuple(order()) for _ in range(20)}) > 1


@pytest.mark.parametrize("encoding", ["GBK", "no-such-one", "UTF-8"])
def test_settings_are_read_whatever_encoding_they_say_that_they_have(folder: Path, listens: str, encoding: str) -> None:
    tell(folder, service("lake", {"a": listens, "b": listens}))
    site = folder / "hdfs-site.xml"
    site.write_text(f'\ufeff<?xml version="1.0" encoding="{encoding}"?>\n<!-- 日志 -->{site.read_text()}')
    assert order() == ["a", "b"]


@pytest.mark.parametrize(
    "content",
    [
        "<configuration",
        '<!DOCTYPE configuration [<!ENTITY more SYSTEM "more.xml">]><configuration>&more;</configuration>',
        '<configuration xmlns:x="http://www.w3.org/2001/XInclude"><x:include href="more.xml"/></configuration>',
        b"\xff\xfe",
    ],
)
def test_what_another_file_or_nobody_explains_is_left_to_the_client(
    folder: Path, listens: str, content: str | bytes
) -> None:
    tell(folder, service("lake", {"a": listens}), "core-site.xml")
    (folder / "hdfs-site.xml").write_bytes(content.encode() if isinstance(content, str) else content)
    assert namenodes.settings("lake") == {"dfs.client.failover.max.attempts": "6"}
    (folder / "hdfs-site.xml").write_text('<c xmlns="of:somebody"><property/></c>')
    assert order() == ["a"]


def test_a_name_listens_where_the_client_tries_it_first(monkeypatch: pytest.MonkeyPatch, listens: str) -> None:
    ask, port = socket.getaddrinfo, int(listens.rpartition(":")[2])

    def both(*given: Any, **named: Any) -> Any:
        return [*ask("127.0.0.2", port, **named), *ask("127.0.0.1", port, **named)]

    assert namenodes._listens(listens)
    monkeypatch.setattr(socket, "getaddrinfo", both)
    assert not namenodes._listens(listens)
    assert not namenodes._listens("host:99999999999999999999")
