"""Row keys, which say where a row came from; and record keys with their buckets, as Hudi's writers make them.

Source: hudi.apache.org/docs/indexes and `BucketIdentifier` of Hudi 1.2.0, whose results tests compare with ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from airflow_provider_slshudi.system.native import numbered

_MASK = 0xFFFFFFFF
_WORDS = {"__null__": "", "__empty__": ""}
"""The words that Hudi writes for NULL and for an empty text, and reads back as these; both have the same hash."""


def row_keys(shard: int, cursors: pa.Array, indexes: pa.Array) -> pa.Array:
    """`{shard}-{cursor}-{index}`: where a row came from, unique and the same however often it is read."""
    return numbered(str(shard), "-", cursors, indexes)


def lacking(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Where a key's column has no value; an empty text counts as none."""
    if not pa.types.is_string(values.type):
        return pc.is_null(values)
    return pc.or_(pc.is_null(values), pc.equal(pc.fill_null(values, ""), ""))


def record_keys(names: Sequence[str], columns: Sequence[pa.Array]) -> pa.Array:
    """The texts of `_hoodie_record_key`: the value of one column, or `name:value` of several, separated by commas.

    Values are neither NULL nor empty.
    """
    texts = [_text(column) for column in columns]
    if len(texts) == 1:
        return texts[0]
    parts = [pc.binary_join_element_wise(pa.scalar(name), text, ":") for name, text in zip(names, texts, strict=True)]
    return pc.binary_join_element_wise(*parts, ",")


def bucket_ids(names: Sequence[str], columns: Sequence[pa.Array], keys: pa.Array, buckets: int) -> np.ndarray[Any, Any]:
    """The bucket of each row, 0 to `buckets` - 1, from the columns of its key and `record_keys` of them.

    Args:
        names: of the key's columns.
        columns: their values, one array each.
        keys: the record keys, strings.
        buckets: their number.
    """
    hashes = np.ones(len(keys), np.uint32)
    for column in columns:
        hashes = hashes * np.uint32(31) + java_hashes(_text(column))
    # Hudi takes the values back out of the key's text, where separators and its two words mislead it.
    odd = _with_separators(columns)
    if len(columns) > 1:
        odd |= _any([pc.is_in(_text(column), value_set=pa.array(list(_WORDS))) for column in columns])
    for place in np.nonzero(odd)[0]:
        hashes[place] = _hash_of(values_in_key(keys[int(place)].as_py(), names) or [])
    return (hashes & np.uint32(0x7FFFFFFF)) % np.uint32(buckets)


def unusable(names: Sequence[str], columns: Sequence[pa.Array]) -> np.ndarray[Any, Any]:
    """Which rows have a key that other values could have too, or whose bucket no Hudi writer could find.

    The text of a key with several columns is ambiguous if a value holds the next column's name, with a comma before it
    and a colon behind. NULL is not unusable.
    """
    odd = _with_separators(columns)
    ambiguous_mask = np.zeros(len(odd), bool)
    if odd.any():
        for column, following in zip(columns, names[1:], strict=False):
            ambiguous_mask |= _any([pc.match_substring(_text(column), f",{following}:")])
        keys = record_keys(names, columns)
        for place in np.nonzero(odd & ~ambiguous_mask)[0]:
            key = keys[int(place)].as_py()
            ambiguous_mask[place] = key is not None and values_in_key(key, names) is None
    return ambiguous_mask


def values_in_key(key: str, names: Sequence[str]) -> list[str] | None:
    """The values of the columns as Hudi reads them back out of a key with commas and colons.

    None if Hudi would look for the end of a value for ever.
    """
    values, begin = [], 0
    while True:
        colon = key.find(":", begin)
        end, comma = len(key), key.find(",", colon + 1)
        # The value ends at the last comma before the first colon that has a comma between it and the value's own.
        following = key.find(":", comma + 1) if comma >= 0 else -1
        if following >= 0:
            end = key.rfind(",", colon + 1, following)
        elif key[begin:colon] not in names and key.find(":", colon + 1) >= 0:
            return None
        if key[begin:colon] in names:
            values.append(_WORDS.get(key[colon + 1 : end], key[colon + 1 : end]))
        if end == len(key):
            return values or [key]
        begin = end + 1


def java_hashes(texts: pa.Array) -> np.ndarray[Any, Any]:
    """Java's `String.hashCode` of each text, as unsigned numbers of 32 bits."""
    texts = texts.cast(pa.large_string())
    _, offsets_, data_ = texts.buffers()
    offsets = np.frombuffer(offsets_, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    data: NDArray[Any] = np.frombuffer(data_, np.uint8)[offsets[0] : offsets[-1]] if data_ else np.empty(0, np.uint8)
    ends = offsets - offsets[0]
    units = data.astype(np.uint32)
    if data.size and data.max() > 127:
        # Java hashes UTF-16 units.
        wide = [text.encode("utf-16-le") for text in texts.to_pylist()]
        units = np.frombuffer(b"".join(wide), np.uint16).astype(np.uint32)
        ends = np.concatenate([[0], np.cumsum([len(text) // 2 for text in wide])])
    lengths = np.diff(ends)
    hashes = np.zeros(len(lengths), np.uint32)
    if units.size:
        powers: NDArray[Any] = np.empty(int(lengths.max()), np.uint32)
        powers[0] = 1
        powers[1:] = 31
        powers = np.multiply.accumulate(powers, dtype=np.uint32)
        exponents = np.repeat(ends[1:], lengths) - 1 - np.arange(len(units))
        full = lengths > 0
        hashes[full] = np.add.reduceat(units * powers[exponents], ends[:-1][full], dtype=np.uint32)
    return hashes


def _hash_of(values: Sequence[str]) -> int:
    list_hash = 1
    for value in values:
        inner = 0
        for unit in np.frombuffer(value.encode("utf-16-le"), np.uint16).tolist():
            inner = (31 * inner + unit) & _MASK
        list_hash = (31 * list_hash + inner) & _MASK
    return list_hash


def _with_separators(columns: Sequence[pa.Array]) -> np.ndarray[Any, Any]:
    """Which rows have a value that holds both a comma and a colon."""
    separator_mask = np.zeros(len(columns[0]), bool)
    for column in columns:
        if pa.types.is_string(column.type):
            commas = _any([pc.match_substring(column, ",")])
            separator_mask |= commas & _any([pc.match_substring(column, ":")]) if commas.any() else commas
    return separator_mask


def _any(masks: Sequence[pa.Array]) -> np.ndarray[Any, Any]:
    union = np.zeros(len(masks[0]), bool)
    for mask in masks:
        union |= pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
    return union


def _text(column: pa.Array) -> pa.Array:
    flat = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return flat if pa.types.is_string(flat.type) else flat.cast(pa.string())
