"""Spark's master, reached or not."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from airflow_provider_slshudi.doctor import machine
from airflow_provider_slshudi.doctor.finding import Verdict
from tests.services import closed_port

OK, WARNING, WRONG, UNKNOWN = Verdict


@pytest.fixture
def listening() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed() -> Iterator[str]:
    with closed_port() as port:
        yield f"127.0.0.1:{port}"


@pytest.mark.parametrize("name", ["local", "local[2]", "local[*]"])
def test_a_local_master_needs_nobody(name: str) -> None:
    assert machine.answers(name).verdict is OK


def test_a_cluster_is_connected_to(listening: str, closed: str) -> None:
    assert machine.answers(f"spark://{listening}").verdict is OK
    assert machine.answers(f"k8s://https://{listening}").verdict is OK
    refused = machine.answers(f"spark://{closed}")
    assert refused.verdict is WRONG and closed in refused.what
    one_of_two = machine.answers(f"spark://{closed},{listening}")
    assert one_of_two.verdict is WARNING and closed in one_of_two.what


def test_a_name_that_nobody_knows_is_wrong() -> None:
    assert machine.answers("spark://master.invalid:7077").verdict is WRONG


def test_a_master_without_an_address_is_wrong_and_one_that_has_it_elsewhere_is_not_known() -> None:
    assert machine.answers("spark://master").verdict is WRONG
    assert machine.answers("yarn").verdict is UNKNOWN
