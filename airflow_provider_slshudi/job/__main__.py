"""The application of spark-submit: `VERB ORDER`, see `orders`. Results are left on the table, not printed."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from airflow_provider_slshudi.hudi.gateway import Gateway
from airflow_provider_slshudi.hudi.runtime import leave, quiet
from airflow_provider_slshudi.job import verbs
from airflow_provider_slshudi.job.orders import IN_SESSION, REASON, JobOrder, Verb
from airflow_provider_slshudi.processes import end_with_parent


def main(arguments: list[str]) -> None:
    """Runs one verb and ends the driver."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    # The JVM that started this interpreter ends with the task; a stopped interpreter would not notice.
    end_with_parent()
    order = JobOrder.from_json(arguments[1])
    match Verb(arguments[0]):
        case Verb.OPEN:
            gateway = Gateway.without_context()
            verbs.open_instant(gateway, order)
        case Verb.APPEND:
            with SparkContext.getOrCreate() as spark:
                gateway = Gateway.of(spark)
                verbs.append(spark, order)
        case verb if verb in IN_SESSION:
            session = SparkSession.builder.getOrCreate()
            gateway = Gateway.of(session.sparkContext)
            verbs.SESSION[verb](session, order)
            session.stop()
        case verb:
            with control_context() as gateway:
                verbs.CONTROL[verb](gateway, order)
    leave(gateway.jvm)


@contextmanager
def control_context() -> Iterator[Gateway]:
    """A SparkContext on this machine, whatever master spark-submit was given: a commit needs no cluster."""
    from pyspark import SparkConf, SparkContext

    with SparkContext(conf=SparkConf().setMaster("local[2]")) as spark:
        spark.setLogLevel("WARN")
        quiet(spark._jvm)
        yield Gateway.of(spark)


def reason(error: BaseException) -> str:
    """The package's own error within what Spark made of it, else the error itself; one line."""
    found = re.findall(r"airflow_provider_slshudi\.exceptions\.(\w+: .+)", str(error))
    text = str(found[-1]) if found else f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:2000]


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Exception as error:
        traceback.print_exc()
        print(f"{REASON}{reason(error)}", flush=True)
        # The JVM's own words of farewell would be the last ones otherwise.
        sys.exit(1)
