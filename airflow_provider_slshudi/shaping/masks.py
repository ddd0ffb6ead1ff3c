"""Replaces values of logs that are not to be written as they came: whole columns at a time.

A mask is applied to a pull's logs before they become rows, go into the quarantine, or are told of; so nothing that is
written has what it takes out. Keys of logs are masked wherever they stand: in a column of their own, or among the rest.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_slshudi.config.columns import ALL, Mask
from airflow_provider_slshudi.rows.casts import as_text
from airflow_provider_slshudi.shaping.inputs import flat
from airflow_provider_slshudi.sls.columns import META, REST
from airflow_provider_slshudi.system.secrets import Secret

REDACTED = "***"
_TEXTS = ("__topic__", "__source__")
_DATE = r"(?:18|19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])"
_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])"
_V4 = rf"(?:{_BYTE}\.){{3}}{_BYTE}"
_HEX = r"[0-9A-Fa-f]{1,4}"
_HEXES = rf"{_HEX}(?::{_HEX})*"
PATTERNS = {
    "cn_mobile": r"(?:(?:\+|00)?86[- ]?)?1[3-9][0-9][- ]?[0-9]{4}[- ]?[0-9]{4}",
    "cn_id_card": rf"[1-9][0-9]{{5}}{_DATE}[0-9]{{3}}[0-9Xx]",
    "email": r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+(?:@|%40)[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+",
    "ip": rf"(?:{_HEXES})?::(?:{_HEX}:)*{_V4}|{_V4}|(?:{_HEX}:){{7}}{_HEX}|(?:{_HEXES})?::(?:{_HEXES})?",
}
"""What the named patterns match; `bank_card` is `CARD`, where the last digit is right (ISO/IEC 7812-1).

No issuer's numbers begin with 1, 7 or 8, as times in milliseconds do, or are shorter than 15 digits any more.
"""
CARD = r"[2-69](?:[- ]?[0-9]){14,18}"
# Digits beside a number make it another one; RE2 has no lookaround, so what is beside it is matched and put back.
_BESIDE = {"cn_mobile": "0-9", "cn_id_card": "0-9", "ip": "0-9", "email": ""}
_ESCAPED = r"%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}"
"""A letter as URLs, JSON and web servers' logs write it, whose last digits are none of the number behind it."""
_RUN = re.compile(rb"[0-9](?:[- ]?[0-9])*")
_BEGIN = re.compile(rb"(?<![0-9])|(?<=%[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4})|(?<=\\x[0-9A-Fa-f]{2})")
_CARD_DIGITS = range(19, 14, -1)


@dataclass(frozen=True)
class MaskSpec:
    """A mask as a task needs it: see `config.columns.Mask`."""

    keys: tuple[str, ...]
    by: str
    patterns: tuple[str, ...] = ()
    characters: int = 0

    @classmethod
    def of(cls, mask: Mask) -> MaskSpec:
        """A mask of a pipeline file."""
        return cls(tuple(mask.keys), mask.by, tuple(mask.patterns), mask.characters or 0)


@dataclass(frozen=True)
class HashKey:
    """The key of `hash`; its name stands before each hash, so that hashes by two keys are told apart."""

    name: str
    secret: Secret


class Masks:
    """Masks logs.

    Args:
        specs: in the order in which they are applied.
        key: of `hash`; None where no mask is one.
    """

    def __init__(self, specs: Sequence[MaskSpec], key: HashKey | None = None) -> None:
        self._specs, self._key = specs, key

    def masked(self, logs: pa.Table) -> pa.Table:
        """Logs, as `sls.decode` gives them with any keys, with their values masked."""
        for spec in self._specs:
            change = self._change(spec)
            for place, name in enumerate(logs.column_names):
                if name == REST.name:
                    logs = logs.set_column(place, REST, _among_rest(flat(logs[name]), spec, change))
                elif (name in spec.keys or (ALL in spec.keys and name not in META.names)) or (
                    ALL in spec.keys and name in _TEXTS
                ):
                    values = change(flat(logs[name]))
                    if name in _TEXTS:
                        values = pc.fill_null(values, b"")
                    logs = logs.set_column(place, logs.schema.field(place), values)
        return logs

    def _change(self, spec: MaskSpec) -> Callable[[pa.Array], pa.Array]:
        if spec.by == "hash":
            if self._key is None:
                raise RuntimeError("a mask hashes, and there is no key")
            key = self._key
            return lambda values: hashed(values, key)
        if spec.by == "truncate":
            return lambda values: truncated(values, spec.characters)
        if spec.by == "redact":
            return lambda values: redacted(values, spec.patterns)
        return lambda values: pa.nulls(len(values), values.type)


def hashed(values: pa.Array, key: HashKey) -> pa.Array:
    """HMAC-SHA-256 of each value (binary), its first 128 bits in hexadecimal digits, behind the key's name.

    Python hashes each distinct value of the array once: Arrow has no such kernel.
    """
    distinct = values.dictionary_encode()
    secret, name = key.secret.reveal().encode(), key.name.encode()
    texts = [
        None if value is None else name + b":" + hmac.digest(secret, value, "sha256").hex()[:32].encode()
        for value in distinct.dictionary.to_pylist()
    ]
    return pa.array(texts, pa.binary()).take(distinct.indices)


def truncated(values: pa.Array, characters: int) -> pa.Array:
    """The first characters of each value (binary); of one that is no UTF-8 as many bytes."""
    text = as_text(values)
    cut = (
        pc.utf8_slice_codeunits(text, 0, characters).cast(pa.binary()) if characters else pc.binary_slice(values, 0, 0)
    )
    return cut if text.null_count == values.null_count else pc.coalesce(cut, pc.binary_slice(values, 0, characters))


def redacted(values: pa.Array, patterns: Sequence[str]) -> pa.Array:
    """The values (binary) with `***` in the place of what matches a pattern."""
    for pattern in patterns:
        if pattern == "bank_card":
            values = _without_cards(values)
        elif pattern not in PATTERNS:
            values = pc.replace_substring_regex(values.view(pa.string()), f"(?:{pattern})", REDACTED).view(pa.binary())
        elif beside := _BESIDE[pattern]:
            # What stands between two numbers is matched with the first: the second is found in another pass. Over
            # binary values RE2 takes each byte for a character, also one that is no UTF-8.
            around = rf"(^|[^{beside}]|{_ESCAPED})(?:{PATTERNS[pattern]})($|[^{beside}])"
            for _ in range(2):
                values = pc.replace_substring_regex(values, around, rf"\1{REDACTED}\2")
        else:
            values = pc.replace_substring_regex(values, PATTERNS[pattern], REDACTED)
    return values


def _without_cards(values: pa.Array) -> pa.Array:
    """Card numbers replaced; Python looks at the texts that have so many digits, since the last one is a checksum."""
    candidates = pc.fill_null(pc.match_substring_regex(values, CARD), False)
    if not pc.any(candidates).as_py():
        return values
    replaced = [_RUN.sub(_card_or_stars, value) for value in values.filter(candidates).to_pylist()]
    return pc.replace_with_mask(values, candidates, pa.array(replaced, pa.binary()))


def _card_or_stars(match: re.Match[bytes]) -> bytes:
    """A run of digits with each card number in it replaced, wherever it begins; others may stand beside it."""
    text = match.string
    places = [place for place in range(*match.span()) if 48 <= text[place] <= 57]
    parts, done, first = list[bytes](), match.start(), 0
    while first < len(places):
        for length in _CARD_DIGITS:
            last = first + length - 1
            if last >= len(places) or (last + 1 < len(places) and places[last + 1] == places[last] + 1):
                continue
            digits = [text[place] - 48 for place in places[first : last + 1]]
            if digits[0] not in (0, 1, 7, 8) and _BEGIN.match(text, places[first]) and _is_checked(digits):
                parts += [text[done : places[first]], REDACTED.encode()]
                done, first = places[last] + 1, last
                break
        first += 1
    return b"".join([*parts, text[done : match.end()]])


def _is_checked(digits: list[int]) -> bool:
    """Whether the last digit is right (ISO/IEC 7812-1)."""
    doubled = [digit if place % 2 == 0 else digit * 2 - 9 * (digit > 4) for place, digit in enumerate(reversed(digits))]
    return sum(doubled) % 10 == 0


def _among_rest(rest: pa.MapArray, spec: MaskSpec, change: Callable[[pa.Array], pa.Array]) -> pa.MapArray:
    items = rest.items
    if ALL in spec.keys:
        return pa.MapArray.from_arrays(rest.offsets, rest.keys, change(items), REST.type)
    names = pa.array([key.encode() for key in spec.keys], pa.binary())
    chosen = pc.is_in(rest.keys, value_set=names)
    if not pc.any(chosen).as_py():
        return rest
    places = np.nonzero(chosen.to_numpy(zero_copy_only=False))[0]
    changed = change(items.take(pa.array(places)))
    # Each value from where it is, or from behind all of them.
    index = np.arange(len(items))
    index[places] = len(items) + np.arange(len(places))
    joined = pa.concat_arrays([items, changed]).take(pa.array(index))
    return pa.MapArray.from_arrays(rest.offsets, rest.keys, joined, REST.type)
