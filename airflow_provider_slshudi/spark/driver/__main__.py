"""The application of spark-submit: `VERB`, and an order on standard input (`handover.job_order`). Results are
files of `handover`.

In cluster mode it is `VERB FILE`; the file says whom to ask for the order (`spark.driver.remote`).
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_slshudi.exceptions import SlsHudiError
from airflow_provider_slshudi.handover.job_order import CPU, PAGE, REASON, JobOrder, Verb
from airflow_provider_slshudi.hudi.client.gateway import Gateway, driver_jvm, standard_input
from airflow_provider_slshudi.hudi.layout import METADATA_FOLDER
from airflow_provider_slshudi.spark import python_archive
from airflow_provider_slshudi.spark.driver import verbs
from airflow_provider_slshudi.spark.driver.daemon import without_pandas
from airflow_provider_slshudi.spark.runtime import leave, quiet, require_world
from airflow_provider_slshudi.storage import owners
from airflow_provider_slshudi.storage.files import denied
from airflow_provider_slshudi.system.processes import end_with_parent

if TYPE_CHECKING:
    from pyspark import SparkContext

    from airflow_provider_slshudi.spark.driver.key_access import Keys

_FULL = "No space left on device"
_OWN = re.compile(r"airflow_provider_slshudi\.exceptions\.(\w+: .+)")


def main(arguments: list[str]) -> None:
    """Runs one verb and ends the driver."""
    # The JVM that started this interpreter ends with the task; a stopped interpreter would not notice.
    end_with_parent()
    without_pandas()
    verb = Verb(arguments[0])
    if len(arguments) > 1:
        return afar(verb, Path(arguments[1]))
    order = JobOrder.from_json(standard_input())
    if verb.is_distributed:
        from airflow_provider_slshudi.spark.driver.key_access import served

        gateway = distributed(verb, order, served(os.environ))
    elif verb is Verb.OPEN:
        gateway = Gateway.without_context()
        require_world(gateway.jvm)
        verbs.CONTROL[verb](gateway, order)
    else:
        with control_context() as spark:
            gateway = Gateway.of(spark)
            verbs.CONTROL[verb](gateway, order)
    show_cpu(gateway.cpu_seconds())
    leave(gateway.jvm)


def afar(verb: Verb, file: Path) -> None:
    """Runs a verb where a cluster's manager put this driver, for the task that the file names.

    Its JVM belongs to the manager, which takes one that is made to exit for a failed one.
    """
    from pyspark import __version__

    from airflow_provider_slshudi.spark.driver.remote import Remote

    remote = Remote(file)
    done = False
    try:
        remote.start(driver_jvm())
        python_archive.require_fit(os.environ, __version__)
        gateway = distributed(verb, remote.order, lambda *_: nullcontext(remote.keys))
        show_cpu(gateway.cpu_seconds())
        done = True
    except Exception as error:
        print(last_words(error), flush=True)
        sys.exit(1)
    finally:
        remote.close(done)


def distributed(verb: Verb, order: JobOrder, keys: Keys) -> Gateway:
    """Runs a verb whose work a cluster's executors do; returns the way to its JVM."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if verb is Verb.APPEND:
        with SparkContext.getOrCreate() as spark:
            gateway = _prepared(spark)
            verbs.append(spark, order, keys)
        return gateway
    session = SparkSession.builder.getOrCreate()
    gateway = _prepared(session.sparkContext)
    verbs.SESSION[verb](session, order, keys)
    session.stop()
    return gateway


def _prepared(spark: SparkContext) -> Gateway:
    gateway = Gateway.of(spark)
    require_world(gateway.jvm)
    show_page(spark)
    return gateway


def show_cpu(seconds: float | None) -> None:
    """Prints what the driver took, if the system tells."""
    if seconds is not None:
        print(f"{CPU}{seconds:.3f}", flush=True)


def show_page(spark: SparkContext) -> None:
    """Prints the address of the driver's web page, if it has one."""
    if spark.uiWebUrl:
        print(f"{PAGE}{spark.uiWebUrl}", flush=True)


@contextmanager
def control_context() -> Iterator[SparkContext]:
    """A SparkContext on this machine, also if spark-submit was given another master: a commit needs no cluster."""
    from pyspark import SparkConf, SparkContext

    driver_jvm()
    with SparkContext(conf=SparkConf().setMaster("local[2]")) as spark:
        spark.setLogLevel("WARN")
        quiet(spark._jvm)
        require_world(spark._jvm)
        yield spark


def reason(error: BaseException) -> str:
    """The package's own error out of Spark's text, else the error itself; one line.

    If the system refused Java a file, the text names the file's owner. If a file of the metadata table is named, the
    text says what makes that table anew.
    """
    own_errors = _OWN.findall(str(error))
    text = str(own_errors[-1]) if own_errors else f"{type(error).__name__}: {error}"
    if not own_errors and (unfit := python_archive.lacking(text)):
        text = f"{type(unfit).__name__}: {unfit}"
    path = None if own_errors or isinstance(error, SlsHudiError) else owners.refused_in_java(text)
    if path is not None:
        refusal = denied("Hudi", path)
        text = f"{type(refusal).__name__}: {refusal}"
    line = " ".join(text.split())[:2000]
    if own_errors or f"/{METADATA_FOLDER}/" not in line or _FULL in line:
        return line
    return (
        f"{line[:1800]} ... If it stays so, run `slshudi table rebuild-metadata`, which makes the metadata table anew"
    )


def is_own(error: BaseException) -> bool:
    """Whether an error is one of the package's, raised here or by a task."""
    return isinstance(error, SlsHudiError) or bool(_OWN.search(str(error)))


def last_words(error: BaseException) -> str:
    """The text that a failed job prints: its reason, after the trace if the error is not the package's own."""
    trace = "" if is_own(error) else "".join(traceback.format_exception(error))
    return f"{trace}{REASON}{reason(error)}"


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Exception as error:
        print(last_words(error), flush=True)
        # Otherwise the JVM's own last words would come after these.
        sys.exit(1)
