"""Requests in the forms that official SDKs of other languages send them, which the Python SDK does not.

Each form names the SDK whose source it was read from.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import hmac
import zlib
from collections.abc import Mapping
from email.utils import formatdate

import lz4.block
import pytest
import requests
from aliyun.log.log_logs_raw_pb2 import LogGroupListRaw

from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.sls import cursors, wire
from tests.local.sdk import PROJECT

LOG = {"Time": 1_767_225_600, "Contents": [{"Key": b"k", "Value": b"v" * 500}]}
GROUP = wire.LogGroup(Logs=[LOG], Topic=b"t", Source=b"s").SerializeToString()


class Client:
    """Signs by v1 as all those SDKs do, and adds nothing to what a test sends."""

    def __init__(self, server: LocalSls, logstore: str) -> None:
        self._connection, self.path = server.connection(), f"/logstores/{logstore}"

    def ask(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes = b""
    ) -> requests.Response:
        sent = {"x-log-apiversion": "0.6.0", "x-log-signaturemethod": "hmac-sha1", "x-log-bodyrawsize": "0", **headers}
        sent |= {"Date": formatdate(usegmt=True), "Host": f"{PROJECT}.{self._connection.endpoint}"}
        if body:
            sent["Content-MD5"] = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
        covered = "".join(f"{name}:{sent[name]}\n" for name in sorted(sent) if name.startswith("x-"))
        asked = "&".join(f"{name}={value}" for name, value in sorted(query.items()))
        text = "\n".join([method, sent.get("Content-MD5", ""), sent.get("Content-Type", ""), sent["Date"], covered])
        text += self.path + path + (f"?{asked}" if asked else "")
        digest = hmac.new(self._connection.access_key_secret.reveal().encode(), text.encode(), hashlib.sha1).digest()
        sent["Authorization"] = f"LOG {self._connection.access_key_id}:{base64.b64encode(digest).decode()}"
        url = f"http://{self._connection.endpoint}{self.path}{path}"
        prepared = requests.Request(method, url, params=dict(query), data=body).prepare()
        for name, value in sent.items():
            prepared.headers[name] = value
        return requests.Session().send(prepared, timeout=30)

    def put(self, kind: str, body: bytes, path: str = "/shards/lb", **query: str) -> requests.Response:
        headers = {"Content-Type": "application/x-protobuf", "x-log-bodyrawsize": str(len(GROUP))}
        return self.ask("POST", path, query, {**headers, **({"x-log-compresstype": kind} if kind else {})}, body)

    def cursor(self, **query: str) -> str:
        answer = self.ask("GET", "/shards/0", {"type": "cursor", **query}, {"Content-Type": ""})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["cursor"])

    def pull(self, accepted: str, **query: str) -> requests.Response:
        headers = {"Accept": "application/x-protobuf", "Accept-Encoding": accepted}
        answer = self.ask("GET", "/shards/0", {"count": "100", **query}, headers)
        assert answer.status_code == 200, answer.text
        return answer


@pytest.fixture
def asking(local_sls: LocalSls, logstore: str) -> Client:
    return Client(local_sls, logstore)


def groups(body: bytes) -> list[bytes]:
    return [group.SerializeToString() for group in LogGroupListRaw.FromString(body).LogGroups]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        pytest.param("deflate", zlib.compress(GROUP, 6), id="PHP, Android, Java's GZIP"),
        pytest.param("gzip", zlib.compress(GROUP), id="zlib named gzip"),
        pytest.param("gzip", gzip.compress(GROUP), id="gzip"),
        pytest.param("lz4", lz4.block.compress(GROUP, store_size=False), id="Java, Go, Rust, C, C++, C#, .NET"),
        pytest.param("", GROUP, id="Node.js"),
    ],
)
def test_a_put_in_each_compression_comes_back(asking: Client, kind: str, body: bytes) -> None:
    answer = asking.put(kind, body)
    assert answer.status_code == 200, answer.text
    assert groups(asking.pull("", type="log", cursor=asking.cursor(**{"from": "begin"})).content) == [GROUP]


@pytest.mark.parametrize(
    "body",
    [
        zlib.compress(GROUP)[:-1],
        zlib.compress(GROUP) + b"more",
        zlib.compress(GROUP[:-1]),
        zlib.compress(bytes(1 << 26)),
        b"no stream at all",
    ],
    ids=["cut off", "longer", "of another size", "a bomb", "no stream"],
)
def test_a_broken_stream_is_refused_and_not_kept(asking: Client, body: bytes) -> None:
    answer = asking.put("deflate", body)
    assert (answer.status_code, answer.json()["errorCode"]) == (400, "PostBodyUncompressError")
    assert asking.cursor(**{"from": "begin"}) == asking.cursor(**{"from": "end"})


def test_begin_and_end_by_mode_as_php_asks(asking: Client) -> None:
    asking.put("", GROUP)
    assert asking.cursor(mode="begin") == asking.cursor(**{"from": "begin"})
    assert asking.cursor(mode="end") == asking.cursor(**{"from": "end"}) != asking.cursor(mode="begin")
    answer = asking.ask("GET", "/shards/0", {"type": "cursor", "mode": "middle"}, {})
    assert answer.status_code == 400 and "'middle': expected begin, end or unix seconds" in answer.text


def test_a_put_to_the_logstore_itself_as_go_cpp_and_csharp_send_it(asking: Client) -> None:
    answer = asking.put("lz4", lz4.block.compress(GROUP, store_size=False), path="")
    assert answer.status_code == 200, answer.text
    assert asking.put("", GROUP, path="/shards/route", key="0" * 32).status_code == 200
    assert len(groups(asking.pull("", type="logs", cursor=asking.cursor(mode="begin")).content)) == 2


def test_a_processor_of_puts_is_refused(asking: Client) -> None:
    answer = asking.put("", GROUP, processor="mask")
    assert answer.status_code == 400 and "processor is not offered" in answer.text


@pytest.mark.parametrize("accepted", ["gzip", "deflate"])
def test_a_pull_by_zlib_as_php_and_java_ask(asking: Client, accepted: str) -> None:
    asking.put("", GROUP)
    answer = asking.pull(accepted, type="log", cursor=asking.cursor(mode="begin"))
    assert answer.headers["x-log-compresstype"] == accepted and "content-encoding" not in answer.headers
    body = zlib.decompress(answer.content)
    assert groups(body) == [GROUP] and len(body) == int(answer.headers["x-log-bodyrawsize"])


def test_a_listing_with_empty_parameters_as_node_sends_it(local_sls: LocalSls, asking: Client, logstore: str) -> None:
    lister = Client(local_sls, "")
    lister.path = "/logstores"
    answer = lister.ask("GET", "", {"logstoreName": "", "offset": "", "size": ""}, {"Content-Type": "application/json"})
    assert answer.status_code == 200 and logstore in answer.json()["logstores"], answer.text


def test_a_pull_ends_where_rust_says(asking: Client) -> None:
    for _ in range(3):
        asking.put("", GROUP)
    begin = asking.cursor(mode="begin")
    end = cursors.text(cursors.parse(begin) + 2)
    answer = asking.pull("lz4", type="logs", cursor=begin, endCursor=end)
    assert (answer.headers["x-log-count"], answer.headers["x-log-cursor"]) == ("2", end)
