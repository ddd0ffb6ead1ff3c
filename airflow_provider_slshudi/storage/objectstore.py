"""What the two clients of an object store are told: Arrow's, and Hadoop's S3A. Both follow AWS's variables.

Alibaba Cloud's OSS is such a store where its S3 endpoint is asked, with three differences: the bucket is a part of the
host's name, an upload has no checksum behind its content, and a request that deletes many objects needs an MD5.
https://www.alibabacloud.com/help/en/oss/developer-reference/compatibility-with-amazon-s3
"""

from __future__ import annotations

import os
import re
from typing import Any
from urllib.parse import urlsplit

from airflow_provider_slshudi.exceptions import TableError
from airflow_provider_slshudi.system.secrets import hidden_in_variables

_SENT = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_REGION")
"""Variables whose values a request carries."""
CHECKSUMS = ("AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_RESPONSE_CHECKSUM_VALIDATION")
"""Variables that Arrow's client reads. https://docs.aws.amazon.com/sdkref/latest/guide/feature-dataintegrity.html"""
ANSWER_SECONDS = 20.0
"""How long Arrow waits before it asks again. Its own are three: a slower store may do the first request after the
second, and a file that was deleted in between is back."""
_ALIBABA = ".aliyuncs.com"
_REGION = re.compile(r"(?:^|[.-])oss[.-](?P<region>(?:ap|cn|eu|me|na|rg|sa|us)-[a-z0-9-]+?)(?:-internal)?\.")
_ANY_REGION = "us-east-1"


def is_stored(uri: str) -> bool:
    """Whether a table's path is in an object store."""
    return uri.startswith(("s3:", "s3a:", "oss:"))


def is_oss(uri: str) -> bool:
    """Whether a table's path is in Alibaba Cloud's store: by its scheme, or where the endpoint is of Alibaba Cloud."""
    return uri.startswith("oss:") or (is_stored(uri) and _host().endswith(_ALIBABA))


def hadoop_path(uri: str) -> str:
    """A table's path as Hadoop's file systems name it."""
    return re.sub(r"^(s3|oss)://", "s3a://", uri)


def arrow_options(uri: str) -> dict[str, Any]:
    """Arguments of Arrow's S3FileSystem for a table's path.

    Raises:
        TableError: the path is in OSS, and no variable says where that is.
    """
    _require_visible()
    options: dict[str, Any] = {"endpoint_override": _endpoint(uri), "request_timeout": ANSWER_SECONDS}
    if is_oss(uri):
        # Arrow has no setting for it. https://github.com/apache/iceberg-python/issues/2877
        for name in CHECKSUMS:
            os.environ[name] = os.environ.get(name) or "when_required"
        options |= {"force_virtual_addressing": True, "region": _region()}
        # After each object that goes, Arrow sees to its folder. Where objects go one by one, most have theirs.
        options["check_directory_existence_before_creation"] = True
    return options


def hadoop_conf(uri: str) -> dict[str, str]:
    """Spark's settings for Hadoop's S3 client, which does not know the variables that others follow; raises as
    `arrow_options`."""
    _require_visible()
    # It asks for 5,000 uploads at a time, and some stores refuse more than a thousand. After each file it would delete
    # the markers of all folders above, which Hadoop from 3.4 on keeps.
    conf = {"fs.s3a.paging.maximum": "1000", "fs.s3a.directory.marker.retention": "keep"}
    endpoint = _endpoint(uri)
    if endpoint is not None:
        conf |= {"fs.s3a.endpoint": endpoint, "fs.s3a.path.style.access": str(not is_oss(uri)).lower()}
    if is_oss(uri):
        conf["fs.s3a.endpoint.region"] = _region()
    return {f"spark.hadoop.{name}": value for name, value in conf.items()}


def _endpoint(uri: str) -> str | None:
    """Where the store is asked, None for AWS's own."""
    endpoint = _named()
    if not endpoint and uri.startswith("oss:"):
        raise TableError(
            f"{uri}: AWS_ENDPOINT_URL is not set, so Amazon would be asked. Set it to OSS's endpoint for S3's clients, "
            "https://s3.oss-REGION-internal.aliyuncs.com, on every machine",
            table=uri,
        )
    return endpoint or None


def _named() -> str:
    return os.environ.get("AWS_ENDPOINT_URL", "").strip()


def _host() -> str:
    """The endpoint's host; it may stand there without a scheme."""
    endpoint = _named()
    return urlsplit(endpoint if "://" in endpoint else f"//{endpoint}").hostname or ""


def _region() -> str:
    """The region that OSS's signatures name: AWS_REGION, or the endpoint's own where its name tells it."""
    named = _REGION.search(_host())
    return os.environ.get("AWS_REGION") or (named["region"] if named else _ANY_REGION)


def _require_visible() -> None:
    """Refuses keys with invisible characters, which clients' errors would quote.

    Raises:
        TableError: names the variable and the place in it, never its value.
    """
    if hidden := hidden_in_variables(_SENT, only_ascii=True):
        raise TableError(hidden, table="")
