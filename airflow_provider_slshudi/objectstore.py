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

_OSS_HOST = re.compile(r"(?:^|\.)oss-(?P<region>[a-z0-9-]+?)(?:-internal)?\.")
_ANY_REGION = "us-east-1"
CHECKSUMS = ("AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_RESPONSE_CHECKSUM_VALIDATION")


def endpoint() -> str | None:
    """Where the store is asked, None for AWS's own."""
    return os.environ.get("AWS_ENDPOINT_URL") or None


def is_oss() -> bool:
    """Whether the store is Alibaba Cloud's."""
    return _oss() is not None


def hadoop_path(uri: str) -> str:
    """A table's path as Hadoop's file systems name it."""
    return re.sub(r"^(s3|oss)://", "s3a://", uri)


def arrow_options() -> dict[str, Any]:
    """Arguments of Arrow's S3FileSystem."""
    options: dict[str, Any] = {"endpoint_override": endpoint()}
    if is_oss():
        # Arrow has no setting for it. https://github.com/apache/iceberg-python/issues/2877
        for name in CHECKSUMS:
            os.environ.setdefault(name, "when_required")
        options |= {"force_virtual_addressing": True, "region": region()}
        # After each object that goes, Arrow sees to its folder. Where objects go one by one, most have theirs.
        options["check_directory_existence_before_creation"] = True
    return options


def hadoop_conf() -> dict[str, str]:
    """Spark's settings for Hadoop's S3 client, which does not know the variables that others follow."""
    asked = endpoint()
    if asked is None:
        return {}
    conf = {"fs.s3a.endpoint": asked, "fs.s3a.path.style.access": str(not is_oss()).lower()}
    if is_oss():
        conf["fs.s3a.endpoint.region"] = region()
    return {f"spark.hadoop.{name}": value for name, value in conf.items()}


def region() -> str:
    """The region that signatures name: AWS_REGION, or OSS's own by its endpoint."""
    oss = _oss()
    return os.environ.get("AWS_REGION") or (oss["region"] if oss else _ANY_REGION)


def _oss() -> re.Match[str] | None:
    return _OSS_HOST.search(urlsplit(endpoint() or "").hostname or "")
