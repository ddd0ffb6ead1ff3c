"""What expressions cost beside the same by bare pyarrow, and what a condition saves of a task's work.

    python benchmarks/expressions.py [--logs 20000] [--rounds 31] [--json FILE]

Each expression is computed over the logs of a pull, in turns with bare calls of Arrow's kernels over the same arrays:
the figures are CPU seconds per million logs, the median of all rounds, and the median of the rounds' ratios. Then a
task makes rows and files of pulls as an append does, once of all logs and once of those that a condition keeps.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.handover import fencing
from airflow_provider_slshudi.hudi.files.basefile import BaseFileWriter
from airflow_provider_slshudi.rows.maker import RowMaker, RowSpec
from airflow_provider_slshudi.shaping.evaluation import Evaluation, Value
from airflow_provider_slshudi.shaping.grammar import parse
from airflow_provider_slshudi.sls.decode import decode
from airflow_provider_slshudi.storage.files import Storage
from tests.sls.groups import body_of

INSTANT = "20260101000000000"
COLUMNS = {
    "line": "string",
    "host": "string",
    "status": "int",
    "bytes": "bigint",
    "seconds": "double",
    "t": "timestamp",
}
LINE = r'(\S+) \S+ \S+ \[([^\]]+)\] "(\S+) (\S+)'
MAIN = [
    {"name": "line"},
    {"name": "status", "type": "int"},
    {"name": "bytes", "type": "bigint"},
    {"name": "seconds", "type": "double"},
    {"name": "host"},
    {"name": "t", "type": "timestamp", "format": "seconds"},
]
Bare = Callable[[dict[str, pa.Array]], pa.Array]


def _whole(arrays: dict[str, pa.Array]) -> pa.Array:
    return arrays["status"].cast(pa.int64())


CASES: dict[str, Bare] = {
    "bytes * 8 / seconds": lambda a: pc.divide(
        pc.multiply_checked(a["bytes"], 8).cast(pa.float64()), a["seconds"].cast(pa.float64())
    ),
    "status div 100": lambda a: pc.divide_checked(_whole(a), 100),
    "upper(trim(host))": lambda a: pc.utf8_upper(pc.utf8_trim(a["host"], characters=" ")),
    "concat(host, '/', `__topic__`)": lambda a: pc.binary_join_element_wise(a["host"], "/", a["__topic__"], ""),
    "split_part(host, '.', 2)": lambda a: pc.list_element(pc.split_pattern(a["host"], "."), 1),
    f"regexp_extract(line, r'{LINE}', 4)": lambda a: pc.extract_regex(
        a["line"],
        LINE.replace("(", "(?P<a>", 1)
        .replace("[(", "[(?P<b>")
        .replace('"(', '"(?P<c>')
        .replace(" (\\S+)", " (?P<d>\\S+)"),
    ).field("d"),
    "regexp_replace(line, '[0-9]+', '#')": lambda a: pc.replace_substring_regex(a["line"], "[0-9]+", "#"),
    "case when status >= 500 then 'bad' when status >= 400 then 'client' else 'fine' end": lambda a: pc.if_else(
        pc.greater_equal(_whole(a), 500), "bad", pc.if_else(pc.greater_equal(_whole(a), 400), "client", "fine")
    ),
    "hour(from_utc_timestamp(t, 'Asia/Shanghai'))": lambda a: pc.hour(
        pc.local_timestamp(a["t"].cast(pa.timestamp("us", "Asia/Shanghai")))
    ).cast(pa.int64()),
    "status >= 400 and host like 'api%' and bytes > 1000": lambda a: pc.and_kleene(
        pc.and_kleene(pc.greater_equal(_whole(a), 400), pc.match_like(a["host"], "api%")), pc.greater(a["bytes"], 1000)
    ),
}


def access_logs(count: int) -> list[list[tuple[str, str]]]:
    """Logs of a web server, with their keys in order."""
    random = np.random.default_rng(7)
    return [
        [
            (
                "line",
                f'10.0.{n % 200}.1 - - [02/Jan/2026:03:04:{n % 60:02} +0800] "GET /a/{n}?x={n % 7} HTTP/1.1" 200',
            ),
            ("status", str(int(random.choice([200, 200, 200, 302, 404, 500])))),
            ("bytes", str(int(random.integers(100, 100_000)))),
            ("seconds", f"{random.random() + 0.001:.4f}"),
            ("host", f"api-{n % 90}.shop.example.com"),
            ("t", str(1_767_225_600 + n)),
        ]
        for n in range(count)
    ]


def costs(table: pa.Table, rounds: int) -> list[dict[str, Any]]:
    """Seconds per million logs of each expression, ours and bare, and the ratio."""
    typed = {
        "line": table["line"].combine_chunks().cast(pa.string()),
        "host": table["host"].combine_chunks().cast(pa.string()),
        "status": table["status"].combine_chunks().cast(pa.string()).cast(pa.int32()),
        "bytes": table["bytes"].combine_chunks().cast(pa.string()).cast(pa.int64()),
        "seconds": table["seconds"].combine_chunks().cast(pa.string()).cast(pa.float64()),
        "t": table["t"]
        .combine_chunks()
        .cast(pa.string())
        .cast(pa.int64())
        .cast(pa.timestamp("s", "UTC"))
        .cast(pa.timestamp("us", "UTC")),
    }
    figures = []
    for text, bare in CASES.items():
        read = parse(text, COLUMNS)

        def ours(read: Any = read) -> object:
            return Evaluation(table, lambda name: Value(typed[name])).value(read.tree)

        def theirs(bare: Bare = bare) -> object:
            texts = {name: table[name].combine_chunks().cast(pa.string()) for name in read.keys}  # noqa: B023
            return bare({**typed, **texts})

        both = [(_seconds(ours), _seconds(theirs)) for _ in range(rounds)]
        millions = table.num_rows / 1e6
        mine, other = (statistics.median(one[place] for one in both) / millions for place in (0, 1))
        figures.append(
            {"expr": text, "seconds": mine, "bare": other, "ratio": statistics.median(a / b for a, b in both)}
        )
    return figures


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def pipeline(**changes: Any) -> Pipeline:
    """A pipeline of these logs."""
    described = {"name": "b", "source": {"project": "p", "logstore": "l"}, "columns": MAIN, "rest_column": "rest"}
    described["table"] = {"path": "file:///unused", "name": "b", "partition": {"by": "event_time", "column": "t"}}
    return Pipeline.model_validate({**described, **changes})


def task_seconds(body: bytes, of: Pipeline, pulls: int = 60) -> float:
    """CPU seconds in which pulls become files, as in an append's task."""
    spec = RowSpec.of(of)
    maker = RowMaker(spec)
    with tempfile.TemporaryDirectory() as folder:
        main, *beside = [Storage(f"file://{folder}/t{number}") for number in range(1 + len(of.routes))]
        for storage in (main, *beside):
            fencing.admit(storage, INSTANT)
        start = time.process_time()
        with BaseFileWriter(main, INSTANT, "0-0-0", 128 << 20, lambda: None, beside) as writer:
            for number in range(pulls):
                rows = maker.rows(decode(body, 0, number * 1_000, spec.keys), 0)
                for table, data, keys, partitions in rows.parts():
                    writer.write(data, keys, "event_date", partitions, number / pulls, table)
            writer.close_all()
        return time.process_time() - start


def main() -> None:
    """Measures and prints."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--logs", type=int, default=20_000)
    options.add_argument("--rounds", type=int, default=31)
    options.add_argument("--json", type=Path)
    told = options.parse_args()
    body = body_of(access_logs(told.logs))
    table = decode(body, 0, 0, ["line", "status", "bytes", "seconds", "host", "t"])
    figures = costs(table, told.rounds)
    print(f"{'CPU s per million logs':>24} {'bare':>8} {'ratio':>6}  expression")
    for one in figures:
        print(f"{one['seconds']:24.3f} {one['bare']:8.3f} {one['ratio']:6.2f}  {one['expr'][:76]}")
    derived = [{"name": f"e{n}", "type": _column_type(text), "expr": text} for n, text in enumerate(CASES)]
    kinds = {
        "plain": pipeline(),
        "with ten expressions": pipeline(columns=[*MAIN, *derived]),
        "into eight tables": pipeline(routes=[{"name": f"r{n}", "where": f"bytes % 8 = {n}"} for n in range(1, 8)]),
        "of which 1 % is kept": pipeline(where="bytes < 1100 and status < 10000"),
    }
    seconds = {name: [task_seconds(body, of) for _ in range(3)] for name, of in kinds.items()}
    rates = {name: 60 * len(body) / 1e6 / statistics.median(taken) for name, taken in seconds.items()}
    for name, rate in rates.items():
        print(f"{rate:8.1f} MB of logs per CPU second {name}: {rate / rates['plain']:.2f} of plain")
    if told.json:
        told.json.write_text(json.dumps({"expressions": figures, "rates": rates}, indent=1), encoding="utf-8")


def _column_type(text: str) -> str:
    return parse(text, COLUMNS).type


if __name__ == "__main__":
    main()
