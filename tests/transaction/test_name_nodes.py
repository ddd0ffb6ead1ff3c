"""HDFS with two name nodes, of which one takes the other's place while batches run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING

import pytest

from airflow_provider_slshudi.services.rewrite import cluster
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.storage import hdfs
from airflow_provider_slshudi.transaction import plan, steps
from tests.exact.counts import count
from tests.hadoop import NameNodes, name_nodes
from tests.pipelines import served_often
from tests.scenarios import Scenario

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def nodes(spark: SparkSession) -> Iterator[NameNodes]:
    """Known to this process, and to Spark's session, which other tests use too."""
    with name_nodes() as made, pytest.MonkeyPatch.context() as patch:
        hadoop = spark.sparkContext._jsc.hadoopConfiguration()
        for name, value in made.told.items():
            hadoop.set(name, value)
        patch.setenv("HADOOP_CONF_DIR", str(made.settings))
        patch.setitem(spark.sparkContext.environment, "HADOOP_CONF_DIR", str(made.settings))
        hdfs._client.cache_clear()
        yield made
        hdfs._client.cache_clear()
        for name in made.told:
            hadoop.unset(name)


@contextmanager
def turning(nodes: NameNodes, seed: int) -> Iterator[list[int]]:
    """Hands over again and again meanwhile; gives how often. Its own errors are raised in the end."""
    done, over, wrong = [0], threading.Event(), list[BaseException]()

    def turn() -> None:
        random = Random(seed)
        try:
            while not over.wait(random.uniform(0.1, 2)):
                nodes.hand_over()
                done[0] += 1
        except BaseException as error:
            wrong.append(error)

    thread = threading.Thread(target=turn)
    thread.start()
    try:
        yield done
    finally:
        over.set()
        thread.join()
    assert not wrong, wrong


@pytest.mark.parametrize("take_over", [NameNodes.hand_over, NameNodes.fail_over])
def test_the_other_node_takes_over_after_each_step(
    scenario: Callable[..., Scenario], nodes: NameNodes, take_over: Callable[[NameNodes], None]
) -> None:
    made = scenario(location=f"{nodes.files}/{take_over.__name__}", described=served_often)
    for number in range(2):
        made.put(20, first=20 * number)
        work = made.by(f"run-{number}")
        planned = plan.tail(work)
        assert planned is not None
        for step in (steps.open_instant, steps.append, steps.record, steps.commit):
            take_over(nodes)
            step(work, planned.id, planned.token)
    take_over(nodes)
    assert cluster(made.by("maintenance")).instant
    take_over(nodes)
    assert verify(made.work, source=True).rows == 40
    count(made.work, 40).require()


def test_the_nodes_change_places_at_any_moment(scenario: Callable[..., Scenario], nodes: NameNodes) -> None:
    made = scenario(location=f"{nodes.files}/any-moment", described=served_often)
    print(f"seed {(seed := Random().randrange(1 << 32))}")
    with turning(nodes, seed) as turned:
        for number in range(5):
            made.put(20, first=20 * number)
            made.batch(f"run-{number}")
    assert turned[0] > 5
    count(made.work, 100).require()
