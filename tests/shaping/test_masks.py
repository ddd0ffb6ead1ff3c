"""What masks take out of values, and where."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from airflow_provider_slshudi.shaping.masks import HashKey, Masks, MaskSpec, hashed, redacted, truncated
from airflow_provider_slshudi.sls.decode import decode
from airflow_provider_slshudi.system.secrets import Secret
from tests.sls.groups import body_of

KEY = HashKey("mask_1", Secret("k" * 32))


def of(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


@pytest.mark.parametrize(
    ("pattern", "before", "after"),
    [
        ("cn_mobile", "tel 13812345678.", "tel ***."),
        ("cn_mobile", "a13812345678b", "a***b"),
        ("cn_mobile", "13812345678,13912345678,15012345678", "***,***,***"),
        ("cn_mobile", "+86 138-1234-5678 +8613812345678 008613812345678", "*** +*** ***"),
        ("cn_mobile", "%2213812345678%22 \\u53f713812345678", "%22***%22 \\u53f7***"),
        ("ip", "::ffff:192.168.1.77 %2210.0.0.1", "*** %22***"),
        ("bank_card", "4111 1111 1111 1111 12/27, 23 4111111111111111 qty", "*** 12/27, 23 *** qty"),
        ("bank_card", "4111111111111111 123 %224111111111111111%22", "*** 123 %22***%22"),
        ("cn_mobile", "1381234567", "1381234567"),
        ("cn_mobile", "order 99138123456789", "order 99138123456789"),
        ("cn_id_card", "id=11010519491231002X;", "id=***;"),
        ("cn_id_card", "110105194912310021 110105199912310021", "*** ***"),
        ("cn_id_card", "110105194913310021", "110105194913310021"),
        ("bank_card", "4111 1111 1111 1111", "***"),
        ("bank_card", "1767225600002 1767225600000002", "1767225600002 1767225600000002"),
        ("bank_card", "pay:6222020200000000005/", "pay:6222020200000000005/"),
        ("bank_card", "x4111-1111-1111-1111y 4111111111111112", "x***y 4111111111111112"),
        ("email", "to: Zo.e+x@mail.example.com, b@c.cn", "to: ***, ***"),
        ("email", "q=a%40b.com&x", "***&x"),
        ("ip", "from 10.0.0.1:80 to ::1 or 2001:db8::7", "from ***:80 to *** or ***"),
        ("ip", "at 12:34:56 by version 1.2.3, from 10.0.0.1.", "at 12:34:56 by version 1.2.3, from ***."),
        ("[0-9]{4}-secret", "a 1234-secret b", "a *** b"),
    ],
)
def test_a_pattern_takes_out_what_it_names_and_no_more(pattern: str, before: str, after: str) -> None:
    assert redacted(of(before.encode(), None), [pattern]).to_pylist() == [after.encode(), None]


def test_bytes_that_are_no_text_are_masked_too() -> None:
    dirty = b"\xff13812345678\xfe a@b.com \xff4111111111111111"
    left = redacted(of(dirty), ["cn_mobile", "email", "bank_card"])[0].as_py()
    assert b"138" not in left and b"@" not in left and b"4111" not in left
    assert truncated(of(b"\xff\xfeabc", "中文字".encode(), None, b""), 2).to_pylist() == [
        b"\xff\xfe",
        "中文".encode(),
        None,
        b"",
    ]
    assert truncated(of(b"abc", None), 0).to_pylist() == [b"", None]


def test_a_hash_is_equal_for_equal_values_and_names_its_key() -> None:
    one = hashed(of(b"13812345678", b"x", b"13812345678", None, b""), KEY).to_pylist()
    assert one[0] == one[2] != one[1] and one[3] is None and one[4] is not None
    assert one[0].startswith(b"mask_1:") and len(one[0]) == len(b"mask_1:") + 32
    assert hashed(of(b"x"), HashKey("mask_2", Secret("l" * 32)))[0].as_py() != one[1]


def test_a_key_is_masked_wherever_it_stands() -> None:
    logs = [[("phone", "13812345678"), ("note", "call 13912345678"), ("password", "hunter2"), ("n", "1")], [("n", "2")]]
    body = body_of(logs)
    masks = Masks(
        [
            MaskSpec(("phone",), "hash"),
            MaskSpec(("password", "none-such"), "drop"),
            MaskSpec(("*",), "redact", ("cn_mobile", "ip")),
            MaskSpec(("n",), "truncate", characters=0),
        ],
        KEY,
    )
    for keys in ((), ("phone", "note", "password", "n"), ("note", "__source__"), ("password",)):
        masked = masks.masked(decode(body, 0, 0, keys))
        first = {name: masked[name][0].as_py() for name in masked.column_names}
        seen = {**{name.encode(): value for name, value in first.items()}, **dict(first["__rest__"])}
        assert seen[b"phone"] == hashed(of(b"13812345678"), KEY)[0].as_py()
        assert (seen[b"note"], seen[b"password"], seen[b"n"]) == (b"call ***", None, b"")
        assert (seen[b"__source__"], seen[b"__topic__"]) == (b"***", b"access")
        assert masked.schema == decode(body, 0, 0, keys).schema and masked.num_rows == 2


def test_secrets_drawn_by_a_seed_are_gone_from_whatever_stands_beside_them() -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    dice = random.Random(seed)

    def luhn(digits: str) -> str:
        total = sum(int(d) if n % 2 else int(d) * 2 - 9 * (int(d) > 4) for n, d in enumerate(reversed(digits)))
        return digits + str(-total % 10)

    def digits(count: int) -> str:
        return "".join(dice.choice("0123456789") for _ in range(count))

    kinds = {
        "cn_mobile": lambda: f"1{dice.choice('3456789')}{digits(9)}",
        "cn_id_card": lambda: (
            f"{dice.randint(11, 65)}{digits(4)}19{digits(2)}0{dice.randint(1, 9)}1{digits(1)}{digits(3)}X"
        ),
        "bank_card": lambda: luhn(f"6{digits(dice.randint(14, 17))}"),
        "email": lambda: f"u{digits(6)}@mail{digits(3)}.example.com",
        "ip": lambda: ".".join(str(dice.randint(1, 254)) for _ in range(4)),
    }
    beside = ["", " ", ",", "中", '"', "=", "a", "\n", ":", "/", "X", "id_", "-", "."]
    secrets, texts = list[str](), list[bytes]()
    for _ in range(2_000):
        kind = dice.choice(list(kinds))
        parts = [kinds[kind]() for _ in range(dice.randint(1, 4))]
        mark = dice.choice([" ", ",", "\n", '"', "中", ";", ". ", "\0"])
        secrets += parts
        texts.append((dice.choice(beside[:1] + beside[1:]) + mark.join(parts) + mark).encode())
    left = b"\0".join(redacted(of(*texts), list(kinds)).to_pylist()).decode()
    assert [secret for secret in secrets if secret in left] == []
