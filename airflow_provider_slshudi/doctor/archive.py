"""The archive of a pipeline whose executors have Python alone."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from airflow_provider_slshudi.doctor.finding import Seen, ok, unknown, wrong
from airflow_provider_slshudi.spark import executors
from airflow_provider_slshudi.spark.packages import spark_home, spark_version


def fits(archive: str) -> Seen:
    """Whether an archive is there, and holds the code that runs here."""
    place = urlsplit(archive)
    path = place.path
    if place.scheme not in ("", "file"):
        return unknown(f"{archive} is not on this machine; executors compare it with the driver before they read")
    mend = f"`slshudi pack {path}`"
    try:
        held = executors.packed(Path(path))
    except (OSError, ValueError) as error:
        return wrong(f"{path} cannot be used: {error}", mend)
    here = executors.facts(spark_version(spark_home()))
    if differ := executors.differences(held, here):
        return wrong(f"{path} was made with {differ}", mend)
    return ok(f"{path} holds what runs here, for {here['Python']}")
