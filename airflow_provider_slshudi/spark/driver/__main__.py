"""The application of spark-submit. Its argument is the socket at which the job's task gives it its work.

In cluster mode it is a file that says where the task is asked (`spark.driver.remote`). Results are files of `handover`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_slshudi.handover.job_order import Verb
from airflow_provider_slshudi.handover.messages import Page
from airflow_provider_slshudi.hudi.client.gateway import Gateway, driver_jvm
from airflow_provider_slshudi.spark import python_archive
from airflow_provider_slshudi.spark.driver import verbs
from airflow_provider_slshudi.spark.driver.channel import Channel, SocketChannel
from airflow_provider_slshudi.spark.driver.daemon import without_pandas
from airflow_provider_slshudi.spark.runtime import leave, quiet, require_world
from airflow_provider_slshudi.system.processes import end_with_parent

if TYPE_CHECKING:
    from pyspark import SparkContext

    from airflow_provider_slshudi.spark.driver.key_access import Keys


def main(arguments: list[str]) -> None:
    """Carries out one job's work and ends the driver."""
    # The JVM that started this interpreter ends with the task; a stopped interpreter would not notice.
    end_with_parent()
    without_pandas()
    place = Path(arguments[0])
    if not place.is_socket():
        return afar(place)
    from airflow_provider_slshudi.spark.driver.key_access import served

    channel = SocketChannel.of(place)
    if channel.tell_end(lambda: carry_out(channel, served(channel.job.secrets))) is not None:
        # Otherwise the JVM's own last words would come after these.
        sys.exit(1)
    leave(driver_jvm())


def afar(file: Path) -> None:
    """Carries out a job's work where a cluster's manager put this driver, for the task that the file names.

    Its JVM belongs to the manager, which takes one that is made to exit for a failed one.
    """
    from pyspark import __version__

    from airflow_provider_slshudi.spark.driver.remote import Remote

    remote = Remote(file)

    def act() -> float | None:
        remote.start(driver_jvm())
        python_archive.require_fit(os.environ, __version__)
        return carry_out(remote, lambda *_: nullcontext(remote.keys))

    error = remote.tell_end(act)
    remote.close()
    if error is not None:
        sys.exit(1)


def carry_out(channel: Channel, keys: Keys) -> float | None:
    """Does the work in a Spark of its own; returns the CPU seconds that it took."""
    verb, order = channel.job.verb, channel.job.order
    if verb.is_distributed:
        gateway = _distributed(channel, keys)
    elif verb is Verb.OPEN:
        gateway = Gateway.without_context()
        require_world(gateway.jvm)
        verbs.CONTROL[verb](gateway, order)
    else:
        with control_context() as spark:
            gateway = Gateway.of(spark)
            verbs.CONTROL[verb](gateway, order)
    return gateway.cpu_seconds()


def _distributed(channel: Channel, keys: Keys) -> Gateway:
    """Does work of a cluster's executors."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    driver_jvm()
    verb, order, context = channel.job.verb, channel.job.order, SparkContext.getOrCreate()
    # Spark's SQL makes a warehouse folder for tables without a path, by default in the working directory.
    context._jsc.sc().conf().set("spark.sql.warehouse.dir", f"{context._temp_dir}/warehouse")
    if verb is Verb.APPEND:
        with context as spark:
            gateway = _prepared(spark, channel)
            verbs.append(spark, order, keys)
        return gateway
    session = SparkSession.builder.getOrCreate()
    gateway = _prepared(session.sparkContext, channel)
    verbs.SESSION[verb](session, order, keys)
    session.stop()
    return gateway


def _prepared(spark: SparkContext, channel: Channel) -> Gateway:
    gateway = Gateway.of(spark)
    require_world(gateway.jvm)
    if spark.uiWebUrl:
        channel.tell(Page(spark.uiWebUrl))
    return gateway


@contextmanager
def control_context(master: str = "local[2]") -> Iterator[SparkContext]:
    """A SparkContext on this machine, also if spark-submit was given another master: a commit needs no cluster."""
    from pyspark import SparkConf, SparkContext

    driver_jvm()
    with SparkContext(conf=SparkConf().setMaster(master)) as spark:
        spark.setLogLevel("WARN")
        quiet(spark._jvm)
        require_world(spark._jvm)
        yield spark


if __name__ == "__main__":
    main(sys.argv[1:])
