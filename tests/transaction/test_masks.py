"""Masked secrets, put through failures, kills, the quarantine and replays, are in no file that a pipeline leaves."""

from __future__ import annotations

import gzip
import logging
import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aliyun.log import LogItem, PutLogsRequest

from airflow_provider_slshudi.exceptions import JobFailed
from airflow_provider_slshudi.handover.batch_files import Selection
from airflow_provider_slshudi.repair.replay import replay
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.system.secrets import Secret
from airflow_provider_slshudi.transaction import plan, steps
from airflow_provider_slshudi.transaction.settle import settle
from tests.scenarios import DyingLauncher, Scenario
from tests.transaction.quarantined import changed, rows_of

LOGS = 2_000
MASKS = [
    {"keys": ["phone", "__source__"], "by": "hash"},
    {"keys": ["password", "token"], "by": "drop"},
    {"keys": "*", "by": "redact", "patterns": ["cn_mobile", "email", "bank_card", "secret-[0-9a-f]+"]},
    {"keys": "note", "by": "truncate", "characters": 3},
]
COLUMNS = [
    {"name": "event_id"},
    {"name": "event_time", "type": "timestamp", "format": "millis", "key": "ts"},
    {"name": "phone"},
    {"name": "clicks", "type": "bigint"},
    {"name": "first", "expr": "left(key('message'), 30)"},
]


def masking(made: Scenario, **fields: object) -> Scenario:
    """The pipeline with masks, an examples' store that is on, and a connection that has the key."""
    fields = {"columns": COLUMNS, "masks": MASKS, "mask_key": "mask_1", "misfits": "quarantine", **fields}
    made = changed(made, keep_values="7d", rest_column="rest", **fields)
    connect = made.work.connect

    def with_key() -> LogService:
        service = connect()
        keyed = replace(service.connection, mask_name="mask_1", mask_key=Secret("k" * 40))
        return LogService(keyed, service.project, service.logstore)

    return replace(made, work=replace(made.work, connect=with_key))


def put_secrets(pipeline: Scenario, count: int, seed: int) -> list[str]:
    """Puts logs with secrets of each kind, a tenth of which do not fit; returns the secrets."""
    dice, secrets = random.Random(seed), list[str]()

    def secret(text: str) -> str:
        secrets.append(text)
        return text

    def digits(many: int) -> str:
        return "".join(dice.choice("0123456789") for _ in range(many))

    source = pipeline.work.pipeline.source
    for begin in range(0, count, 50):
        items = []
        for number in range(begin, begin + 50):
            contents = [
                ("event_id", f"event-{number}"),
                ("ts", str(1_767_225_600_000 + number)),
                ("phone", secret(f"139{digits(8)}")),
                ("password", secret(f"pw-{digits(12)}-x")),
                ("token", secret(f"tk-{digits(12)}-y")),
                ("note", f"abc{secret(f'note-{digits(10)}')}"),
                ("message", f"{secret(f'u{digits(7)}@example.com')} called {secret(f'150{digits(8)}')}"),
                ("unnamed", f'{{"k": "{secret(f"secret-{digits(14)}")}"}}'),
                ("clicks", secret(f"186{digits(8)}") + "!" if number % 10 == 0 else str(number)),
            ]
            items.append(LogItem(1_700_000_000 + number, contents=contents))
        address = secret(f"10.{dice.randint(100, 250)}.{dice.randint(100, 250)}.{begin % 250}")
        pipeline.client.put_logs(PutLogsRequest(source.project, source.logstore, "ads", address, items))
    return secrets


def contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """The bytes of each file below a folder, as they lie there and unpacked."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        raw = path.read_bytes()
        yield path, raw
        if path.suffix == ".parquet":
            table = pq.ParquetFile(path).read()
            yield path, "\n".join(map(str, table.to_pylist())).encode()
            yield path, str(pq.read_metadata(path).to_dict()).encode()
        elif path.suffix == ".arrows":
            with pa.ipc.open_stream(path) as stream:
                yield path, str(stream.read_all().to_pylist()).encode()
        yield path, unpacked(raw)


def unpacked(raw: bytes) -> bytes:
    """What stands compressed by zlib or gzip anywhere in the bytes: blocks of Avro, HFile and SQLite."""
    parts = []
    for mark in (b"\x1f\x8b", b"\x78\x9c", b"\x78\x01", b"\x78\xda"):
        place = raw.find(mark)
        while place >= 0:
            try:
                opened = zlib.decompressobj(47 if mark == b"\x1f\x8b" else 15).decompress(raw[place:])
                parts.append(opened)
            except (zlib.error, gzip.BadGzipFile):
                pass
            place = raw.find(mark, place + 1)
    return b"\n".join(parts)


def leaks(folders: list[Path], secrets: list[str], more: str = "") -> set[tuple[str, str]]:
    """The secrets that stand somewhere, with the place."""
    import re

    wanted = re.compile(b"|".join(re.escape(secret.encode()) for secret in secrets))
    places = [(str(path), content) for folder in folders for path, content in contents(folder)]
    places.append(("what was printed", more.encode()))
    return {(place, match.decode()) for place, content in places for match in wanted.findall(content)}


@pytest.mark.capability("masks")
def test_no_secret_is_left_anywhere(
    scenario: Callable[..., Scenario],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "airflow_provider_slshudi")
    seed = random.randrange(1 << 30)
    print("seed", seed)
    pipeline = masking(scenario(shards=2))
    secrets = put_secrets(pipeline, LOGS, seed)
    assert len(secrets) > 7 * LOGS
    planned = plan.tail(pipeline.work)
    assert planned is not None
    dying = pipeline.by("killed", launcher=DyingLauncher(Point.APPEND_WRITTEN))
    steps.open_instant(pipeline.work, planned.id, planned.token)
    with pytest.raises(JobFailed):
        steps.append(dying, planned.id, planned.token)
    half_way = leaks([tmp_path], secrets)
    failing = masking(pipeline, misfits="fail")
    settle(failing.work, lambda run: True)
    with pytest.raises(Exception, match="clicks"):
        failing.batch("failed")
    pipeline.batch("whole")
    assert verify(pipeline.work, source=True).ok
    assert replay(pipeline.by("replay"), Selection()) is not None
    as_texts = [column | {"type": "string"} if column["name"] == "clicks" else column for column in COLUMNS]
    healed = masking(pipeline, columns=[*as_texts[:3], {"name": "clicks_text", "key": "clicks"}, *as_texts[4:]])
    replayed = replay(healed.by("replay-2"), Selection())
    assert replayed is not None and replayed.moved == LOGS // 10
    rows = rows_of(pipeline.work.storage.uri)
    assert len(rows) == LOGS and all(row["phone"].startswith("mask_1:") for row in rows)
    assert {row["first"] for row in rows} == {"*** called ***"}
    told = capfd.readouterr()
    found = half_way | leaks([tmp_path], secrets, told.out + told.err + caplog.text)
    assert not found, sorted(found)[:5]


@pytest.mark.parametrize("without", [0, 1, 2, 3])
def test_the_search_finds_what_a_mask_would_have_taken_out(
    scenario: Callable[..., Scenario], tmp_path: Path, without: int
) -> None:
    masks = [mask for place, mask in enumerate(MASKS) if place != without]
    pipeline = masking(scenario(shards=2), masks=masks, mask_key="mask_1" if without else None)
    secrets = put_secrets(pipeline, 100, 1)
    pipeline.batch("whole")
    assert leaks([tmp_path], secrets)
