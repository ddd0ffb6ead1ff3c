"""`python -m tests.fuzz.bodies --count 1000000`: mutated pull answers to the client.

Whatever is done to an answer's body, packed or not, and to its headers, the client refuses it with an error of its own
or believes it; what it believes has, by protobuf's own parser, the size and the log groups that were announced, and
decodes to as many logs as that parser counts. The decoder in use and ptars must agree on it. Each worker is a process:
one that crashes, stalls or grows is a failure.
"""

from __future__ import annotations

import argparse
import faulthandler
import multiprocessing
import random
import resource
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import lz4.block
import pyarrow as pa
import zstd
from google.protobuf import message_factory
from google.protobuf.message import DecodeError as ParseError

from airflow_provider_slshudi.exceptions import DecodeError
from airflow_provider_slshudi.sls import answers, cursors, ptars_decode, wire
from airflow_provider_slshudi.sls.answers import Doubt, Pull
from airflow_provider_slshudi.sls.decode import decoder
from airflow_provider_slshudi.sls.transport import Answer

BEGIN = 1_614_750_027_373_205_714
TIME_LIMIT = 20.0
"""Seconds that one answer may take."""

MOST_GROWTH = 512 << 20
"""Bytes of memory that a worker may gain."""

_PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "lz4": lambda body: lz4.block.compress(body, store_size=False),
    "zstd": lambda body: zstd.compress(body, 1),
}
_ODD_HEADERS = ("", "-1", "0", "1", "²", "1e9", "9" * 18, "9" * 5000, str(2**31), "nonsense", "LTE=", "gzip", "deflate")
_ODD_BYTES = (b"", b"\x00", b"\xff" * 10, b"\x80" * 10, b"\x0a\xff\xff\xff\xff\x0f", b"\x0b\x0c", b"\x12\x00")
Headers = dict[str, str]
_LIST: Any = message_factory.GetMessageClass(wire.LOG_GROUP_LIST)


@dataclass(slots=True)
class Outcome:
    """What became of the answers; `wrong` names those that broke a promise."""

    seed: int
    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether there were answers and every promise was kept."""
        return not self.wrong and sum(self.outcomes.values()) > 0

    def __str__(self) -> str:
        found = ", ".join(f"{count} {name}" for name, count in sorted(self.outcomes.items()))
        total = sum(self.outcomes.values())
        return f"pull body fuzz: {total} mutated answers, {len(self.wrong)} promises broken; {found} (seed {self.seed})"


def list_of_groups(dice: random.Random) -> bytes:
    """A few log groups with a few logs."""
    parts = []
    for _ in range(dice.randint(1, 4)):
        group = wire.LogGroup(Topic=b"topic", Source=b"10.0.0.1")
        group.LogTags.add(Key=b"host", Value=b"h1")
        for number in range(dice.randint(0, 3)):
            log = group.Logs.add(Time=1_700_000_000 + number, Time_ns=number)
            for key in dice.sample([b"id", b"level", b"message", b"user"], dice.randint(0, 4)):
                log.Contents.add(Key=key, Value=dice.randbytes(dice.randint(0, 150)))
        body = group.SerializeToString()
        parts.append(wire.frame(len(body)) + body)
    return b"".join(parts)


def mutated(body: bytes, dice: random.Random) -> bytes:
    """`body` with one to three changes: bits, bytes, a piece taken out, put in twice, moved, or the end cut off."""
    out = bytearray(body)
    for _ in range(dice.randint(1, 3)):
        at, size = dice.randint(0, len(out)), dice.randint(0, 8)
        kind = dice.randrange(6)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << dice.randrange(8)
        elif kind == 1:
            out[at : at + size] = dice.randbytes(size)
        elif kind == 2:
            del out[at : at + size]
        elif kind == 3:
            out[at:at] = out[dice.randint(0, len(out)) :][:size]
        elif kind == 4:
            out[at:at] = dice.choice(_ODD_BYTES)
        else:
            del out[at:]
    return bytes(out)


def _answer(dice: random.Random) -> tuple[Answer, int, bytes]:
    """A mutated answer, the end of what was asked for, and the body before packing."""
    body, kind = list_of_groups(dice), dice.choice(list(_PACK))
    groups = wire.count_groups(body)
    end = BEGIN + groups + dice.choice((0, 0, 0, 5))
    size, where = len(body), dice.choice(("raw", "raw, announced", "packed", "headers"))
    if where.startswith("raw"):
        body = mutated(body, dice)
        # The hard ones: the size is what was announced, and sometimes so are the frames.
        size = len(body) if where.endswith("announced") else size
    packed = _PACK[kind](body)
    if where == "packed":
        packed = mutated(packed, dice)
    headers = {
        "x-log-count": str(groups),
        "x-log-bodyrawsize": str(size),
        "x-log-cursor": cursors.text(BEGIN + groups),
        "x-log-compresstype": kind,
    }
    if where == "headers":
        _change(headers, dice)
    return Answer(200, headers, bytearray(packed)), end, body


def _change(headers: Headers, dice: random.Random) -> None:
    name = dice.choice(list(headers))
    if dice.random() < 0.2:
        del headers[name]
    elif dice.random() < 0.5 and headers[name].isdigit():
        headers[name] = str(max(0, int(headers[name]) + dice.choice((-2, -1, 1, 2, 1000, 10**9))))
    else:
        headers[name] = dice.choice((*_ODD_HEADERS, cursors.text(dice.choice((0, BEGIN - 1, BEGIN, BEGIN + 9, 2**62)))))


def agreed(body: bytes, first: int, keys: list[str]) -> pa.Table | None:
    """What the decoder in use and ptars both make of a body, None where both refuse it.

    Raises AssertionError where they differ. What ptars believes may be refused where protobuf's own parser does so.
    """
    table = _table(decoder.decode, body, first, keys)
    other = table if decoder is ptars_decode else _table(ptars_decode.decode, body, first, keys)
    if table is not None and other is not None:
        if not (table.schema.equals(other.schema) and table.equals(other)):
            raise AssertionError(f"{body!r}: {table.to_pylist()}, by ptars {other.to_pylist()}")
    elif other is not None:
        try:
            _LIST().MergeFromString(body)
        except ParseError:
            return None
        raise AssertionError(f"{body!r}: refused, though ptars and protobuf take it")
    elif table is not None:
        raise AssertionError(f"{body!r}: taken, though ptars refuses it")
    return table


def _table(decode: Callable[..., pa.Table], body: bytes, first: int, keys: list[str]) -> pa.Table | None:
    try:
        table = decode(body, 0, first, keys)
    except DecodeError:
        return None
    table.validate(full=True)
    return table


def _try(dice: random.Random) -> str:
    """What became of one mutated answer; raises AssertionError where a promise is broken."""
    answer, end, _ = _answer(dice)
    try:
        pull = answers.pull(answer, 0, BEGIN, end)
    except Doubt:
        return "refused"
    table = agreed(pull.body, pull.begin, ["id", "message", "__tag__:host"])
    if table is None:
        return "not decoded"
    return _check(pull, answer, end, table.num_rows)


def _check(pull: Pull, answer: Answer, end: int, rows: int) -> str:
    announced = int(answer.headers["x-log-bodyrawsize"]), int(answer.headers["x-log-count"])
    if (len(pull.body), pull.groups) != announced:
        raise AssertionError(f"{len(pull.body)} bytes in {pull.groups} log groups, announced {announced}")
    if not BEGIN <= pull.next <= end or pull.next < BEGIN + pull.groups:
        raise AssertionError(f"next cursor {pull.next} of [{BEGIN}, {end})")
    packed, kind = bytes(answer.body), answer.headers.get("x-log-compresstype", "")
    if kind == "lz4" and packed and lz4.block.decompress(packed, uncompressed_size=len(pull.body)) != pull.body:
        raise AssertionError("not what the lz4 package makes of it")
    if kind == "zstd" and packed and zstd.decompress(packed) != pull.body:
        raise AssertionError("not what the zstd package makes of it")
    try:
        groups = _LIST.FromString(pull.body).LogGroups
    except ParseError:
        return "believed, though protobuf refuses a field"  # ptars lets field numbers pass that there cannot be
    if (len(groups), sum(len(group.Logs) for group in groups)) != (pull.groups, rows):
        raise AssertionError(f"{pull.groups} log groups and {rows} logs where protobuf finds {len(groups)} groups")
    return "believed"


def _work(seed: int, count: int) -> Outcome:
    outcome, dice = Outcome(seed), random.Random(seed)
    for _ in range(100):
        _try(random.Random(dice.random()))  # what is loaded and cached once is no growth
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(count):
        one = dice.getrandbits(64)
        faulthandler.dump_traceback_later(TIME_LIMIT, exit=True)
        try:
            outcome.outcomes[_try(random.Random(one))] += 1
        except Exception as error:
            outcome.outcomes["broken"] += 1
            outcome.wrong.append(f"case {one}: {type(error).__name__}: {error}")
    faulthandler.cancel_dump_traceback_later()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    if grown > MOST_GROWTH:
        outcome.wrong.append(f"a worker grew by {grown >> 20} MiB")
    return outcome


def fuzz(count: int, seed: int, workers: int = 2) -> Outcome:
    """Tries `count` answers in processes of their own; one that dies raises BrokenProcessPool."""
    from concurrent.futures import ProcessPoolExecutor

    total, parts = Outcome(seed), workers * max(1, count // 50_000)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        shares = [count // parts + (number < count % parts) for number in range(parts)]
        for part in pool.map(_work, [seed + number for number in range(parts)], shares):
            total.outcomes.update(part.outcomes)
            total.wrong += part.wrong
    return total


def main() -> int:
    """Prints the outcome; 1 where a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000, help="how many answers (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="repeat a run; without it, another one each time")
    given = parser.parse_args()
    seed = random.randrange(1 << 32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    outcome = fuzz(given.count, seed)
    print(*outcome.wrong[:20], outcome, sep="\n")
    return 0 if outcome.ok else 1


if __name__ == "__main__":
    sys.exit(main())
