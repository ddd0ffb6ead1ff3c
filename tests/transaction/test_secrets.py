"""Who may learn the log service's key, or the logs: not whoever reads a task, connects to a driver or sees its log."""

from __future__ import annotations

import io
import json
import socket
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.serializers import CloudPickleSerializer

from airflow_provider_slshudi.handover.job_order import Verb
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.sls.credential_server import CredentialServer
from airflow_provider_slshudi.system.secrets import NONE
from airflow_provider_slshudi.transaction import steps
from tests.scenarios import Scenario
from tests.upserts import Change, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RPC, RPC_ANSWER, FETCH, FETCHED = 3, 4, 0, 1


class Outsider:
    """Speaks to a block port as Spark's executors do, with no secret.

    https://github.com/apache/spark/tree/v3.5.9/common/network-common/src/main/java/org/apache/spark/network/protocol
    """

    def __init__(self, port: int) -> None:
        self._connection = socket.create_connection(("127.0.0.1", port), timeout=10)
        self._stream = self._connection.makefile("rb")

    def block(self, app: str, name: str) -> bytes:
        """A block's bytes; none where it is refused."""
        ask = b"\0" + _text(app) + _text("driver") + struct.pack(">i", 1) + _text(name)
        kind, answer = self._asked(RPC, struct.pack(">qi", 1, len(ask)) + ask)
        if kind != RPC_ANSWER:
            return b""
        kind, answer = self._asked(FETCH, answer[13:21] + struct.pack(">i", 0))
        return answer[12:] if kind == FETCHED else b""

    def _asked(self, kind: int, message: bytes) -> tuple[int, bytes]:
        self._connection.sendall(struct.pack(">qb", 9 + len(message), kind) + message)
        head = self._stream.read(9)
        if len(head) < 9:
            return -1, b""
        size, kind = struct.unpack(">qb", head)
        return kind, self._stream.read(size - 9)


def _text(text: str) -> bytes:
    return struct.pack(">i", len(text)) + text.encode()


def key_of(scenario: Scenario) -> bytes:
    return scenario.work.connect().connection.access_key_secret.reveal().encode()


@pytest.mark.parametrize("kind", ["append", "upsert"])
def test_no_task_holds_the_key(
    kind: str,
    scenario: Callable[..., Scenario],
    upserts: Callable[..., Scenario],
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    carried = io.BytesIO()
    dumps: Callable[[CloudPickleSerializer, object], bytes] = CloudPickleSerializer.dumps

    def listen(self: CloudPickleSerializer, given: object) -> bytes:
        made = dumps(self, given)
        carried.write(made)
        return made

    monkeypatch.setattr(CloudPickleSerializer, "dumps", listen)
    made = scenario() if kind == "append" else upserts()
    if kind == "append":
        made.put(20)
        made.batch("run-1")
        assert verify(made.work, source=True).ok
    else:
        put(made.client, made.work.pipeline, [Change(f"c-{number}", 1, "eu") for number in range(20)])
        made.batch("run-1")
    assert key_of(made) not in carried.getvalue()
    assert b"driver.key_access" in carried.getvalue()


def test_a_drivers_block_port_answers_nobody_without_sparks_secret(
    scenario: Callable[..., Scenario], spark: SparkSession
) -> None:
    made = scenario()
    made.put(20)
    made.batch("run-1")
    sc = spark.sparkContext._jsc.sc()
    manager = sc.env().blockManager()
    blocks, entries = [], manager.blockInfoManager().entries()
    while entries.hasNext():
        blocks.append(entries.next()._1().name())
    tasks = [name for name in blocks if name.startswith("broadcast_") and "piece" in name]
    assert tasks
    for name in tasks:
        assert Outsider(manager.blockManagerId().port()).block(sc.applicationId(), name) == b""


def test_a_batch_whose_key_changes_between_driver_and_service_goes_on(
    scenario: Callable[..., Scenario], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has an old key when the append begins; the tasks' first pull is refused, and the next is not."""
    made = scenario()
    made.put(40)
    right = made.work.connect().connection
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"AccessKeyId": "old", "AccessKeySecret": "old"}))
    whole = CredentialServer.__call__

    def answered(self: CredentialServer, question: str) -> bytes:
        answer = whole(self, question)
        keys = {"AccessKeyId": right.access_key_id, "AccessKeySecret": right.access_key_secret.reveal()}
        file.write_text(json.dumps(keys))
        return answer

    monkeypatch.setattr(CredentialServer, "__call__", answered)
    rotating = replace(right, access_key_id="", access_key_secret=NONE, credentials=f"file:{file}")
    opened = made.open(made.work)
    order = made.work.order(
        transaction=opened.id, token=opened.token, instant=str(opened.instant), digest=str(opened.order_digest)
    )
    made.work.launcher.run(Verb.APPEND, order, rotating.to_env())
    assert steps.record(made.work, opened.id, opened.token).rows == 40
