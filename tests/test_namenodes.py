"""Which name node is asked first, and how Hadoop's settings name it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from airflow_provider_slshudi import namenodes

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


def tell(folder: Path, file: str = "hdfs-site.xml", **told: str) -> None:
    """Writes settings; the names' underscores stand for dots."""
    items = (
        f"<property><name>{key.replace('_', '.')}</name><value>{value}</value></property>"
        for key, value in told.items()
    )
    (folder / file).write_text(SITE.format("".join(items)))


def order(service: str = "lake") -> list[str]:
    return namenodes.settings(service)[f"dfs.ha.namenodes.{service}"].split(",")


def test_a_node_that_listens_comes_first_and_otherwise_the_order_is_hadoops(folder: Path, listens: str) -> None:
    nodes = {"dfs_namenode_rpc-address_lake_" + name: NOBODY for name in "abd"}
    tell(folder, dfs_ha_namenodes_lake="a,b,c,d", **nodes, **{"dfs_namenode_rpc-address_lake_c": listens})
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
        tell(
            folder,
            dfs_ha_namenodes_lake="off,on",
            **{"dfs_namenode_rpc-address_lake_off": address, "dfs_namenode_rpc-address_lake_on": listens},
        )
        began = monotonic()
        assert order() == ["on", "off"]
        assert 1 < monotonic() - began < 30


def test_blanks_and_variables_are_read_as_java_reads_them(folder: Path, listens: str) -> None:
    host, _, port = listens.partition(":")
    tell(folder, "core-site.xml", my_host=host, my_port=" ${my.other} ", my_other=port)
    tell(
        folder,
        dfs_ha_namenodes_lake=" a ,\n b ",
        **{"dfs_namenode_rpc-address_lake_a": NOBODY, "dfs_namenode_rpc-address_lake_b": " ${my.host}:${my.other}\n"},
    )
    assert order() == ["b", "a"]
    assert namenodes.settings("lake")["dfs.namenode.rpc-address.lake.b"] == listens


def test_a_variable_that_java_alone_knows_is_told_with_its_setting(folder: Path) -> None:
    tell(folder, dfs_ha_namenodes_lake="a", **{"dfs_namenode_rpc-address_lake_a": "${env.NODE}:8020"})
    with pytest.raises(OSError, match=r"rpc-address\.lake\.a .* is '\$\{env.NODE\}:8020', and env.NODE is none of"):
        namenodes.settings("lake")


@pytest.mark.parametrize("content", ["", "<configuration", "<configuration><property/></configuration>"])
def test_what_is_no_settings_is_left_to_the_client(folder: Path, content: str) -> None:
    (folder / "hdfs-site.xml").write_text(content)
    assert namenodes.settings("lake") == {"dfs.client.failover.max.attempts": "6"}
