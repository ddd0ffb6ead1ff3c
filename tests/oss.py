"""A store that does for S3's clients what OSS does, and refuses what it refuses: an S3 store behind a way with rules.

`python -m tests.oss` brings batches into tables there, rolls one back, ends one whose commit is open, and runs the
table services.

https://www.alibabacloud.com/help/en/oss/developer-reference/compatibility-with-amazon-s3,
https://www.alibabacloud.com/help/en/oss/user-guide/0017-00000804 and
https://www.alibabacloud.com/help/en/oss/developer-reference/deletemultipleobjects tell the rules.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.crash.cases import Step
from tests.crash.world import World
from tests.exact.counts import BEHIND
from tests.exact.world import log_service
from tests.outage.proxy import Proxy
from tests.services import s3_server
from tests.sessions import start_spark

_BUCKET, _HOST = "lake", "s3.oss-cn-tests.localhost"
_WHO_IS_IT = "/%24extremelyunlikelytoexist%24"
"""Arrow looks at the headers of whatever answer comes."""


class Oss(Proxy):
    """The way with OSS's rules; its `url` is an S3 endpoint of OSS. `refusals` are the requests that it refused."""

    def __init__(self, store: str) -> None:
        super().__init__(store)
        self.url = self.url.replace("127.0.0.1", _HOST)
        self.refusals: list[str] = []

    def refusal(self, client: BaseHTTPRequestHandler) -> tuple[int, str] | None:
        found = _refusal(client)
        if found is not None:
            self.refusals.append(f"{client.command} {client.path}: {found[1]}")
        return found


@contextmanager
def oss_store(bucket: str, folder: Path) -> Iterator[tuple[dict[str, str], Oss]]:
    """The variables of the store's clients, and the store with an empty bucket; Java finds it by a file in `folder`."""
    hosts = folder / "hosts"
    names = ("localhost", socket.gethostname(), _HOST, f"{bucket}.{_HOST}")
    hosts.write_text("".join(f"127.0.0.1 {name}\n" for name in names))
    with s3_server(bucket, domain=_HOST) as store, Oss(store.environment["AWS_ENDPOINT_URL"]).running() as oss:
        variables = {**store.environment, "AWS_ENDPOINT_URL": oss.url}
        del variables["AWS_REGION"]
        # Rust's clients have no way to a host of a name that the system does not know.
        variables[BEHIND] = oss.store
        yield {**variables, "JAVA_TOOL_OPTIONS": f"-Djdk.net.hosts.file={hosts}"}, oss


def main() -> int:
    """The exit code says whether each log is in each table once, and no request was refused."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slshudi-oss-")))
        variables, oss = stack.enter_context(oss_store(_BUCKET, folder))
        os.environ.update(variables)
        os.environ.pop("AWS_REGION", None)
        server = stack.enter_context(log_service(folder))
        spark = start_spark(f"oss://{_BUCKET}")
        stack.callback(spark.stop)
        lake = f"oss://{_BUCKET}"
        world = World(folder / "appends", spark, server, "appends", lake=lake)
        with world.line("dead") as line:
            line.before(Step.APPEND)
            print("appends", *line.ends_well(), flush=True)
        world = World(folder / "upserts", spark, server, "upserts", upserts=True, lake=lake)
        with world.line("served") as line:
            line.before_service()
            line.maintained()
            print("upserts", *line.ends_well(), flush=True)
        print(f"oss: {len(oss.refusals)} requests refused", *oss.refusals, sep="\n")
        return 1 if oss.refusals else 0


def _refusal(client: BaseHTTPRequestHandler) -> tuple[int, str] | None:
    headers = client.headers
    if client.path == _WHO_IS_IT:
        return None
    if not headers["Host"].partition(":")[0].endswith(f".{_HOST}"):
        return 403, "SecondLevelDomainForbidden"
    content = headers.get("x-amz-content-sha256", "")
    if content.startswith("STREAMING-") and content != "STREAMING-AWS4-HMAC-SHA256-PAYLOAD":
        return 400, "InvalidArgument"
    query = parse_qs(urlsplit(client.path).query, keep_blank_values=True)
    if "delete" in query and "Content-MD5" not in headers:
        return 400, "MissingArgument"
    # The manual of ListMultipartUploads: max-uploads cannot exceed 1,000.
    if int(query.get("max-uploads", ["0"])[0]) > 1_000:
        return 400, "InvalidArgument"
    return None


if __name__ == "__main__":
    raise SystemExit(main())
