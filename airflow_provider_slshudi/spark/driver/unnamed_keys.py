"""Finds what no column names of a task's logs: keys, and fields of JSON that a struct does not name.

Both decoders put such keys into the map of what is left, so looking costs what is looked at: a task's first few
thousand logs, then one in two hundred (docs/decisions/0034). The JSON of the same logs is read once more, in Python.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_provider_slshudi.config.columns import has_fields, place_of, unnamed_fields
from airflow_provider_slshudi.config.datatypes import parse_type
from airflow_provider_slshudi.handover.batch_files import EXAMPLES, MOST, Unnamed
from airflow_provider_slshudi.rows.convert import ColumnSpec
from airflow_provider_slshudi.rows.documents import at_path
from airflow_provider_slshudi.rows.misfits import SHOWN, shown
from airflow_provider_slshudi.shaping.inputs import flat
from airflow_provider_slshudi.sls.columns import REST

BLOCKS, BLOCK = 8, 64
"""The most logs that are looked at in a pull: so many blocks of so many logs, spread evenly."""
FREE = 4_096
"""So many logs a task looks at, of however many came."""
SHARE = 200
"""After that it looks at one log in so many."""
LONGEST = 200
"""Characters of a key; longer ones are cut."""
_PRUNED = 5 * MOST
_SECRET = re.compile(r"passw|passphrase|secret|token|authorization|cookie|session|credential|(api|private)_?key", re.I)
_HIDDEN = "***"
_log = logging.getLogger(__name__)


class UnnamedKeys:
    """Counts the keys and fields that no column names, with examples. Nothing depends on it, so it never raises.

    Args:
        columns: the pipeline's.
        with_values: whether it keeps a few values of each.
    """

    def __init__(self, columns: Sequence[ColumnSpec] = (), with_values: bool = False) -> None:
        self._structs = [spec for spec in columns if spec.tree is None and has_fields(parse_type(spec.type))]
        self._with_values = with_values
        self._came = self._looked = self._spent = 0
        self._logs: Counter[str] = Counter()
        self._examples: dict[str, list[str]] = {}

    def add(self, logs: pa.Table) -> None:
        """Looks at some logs of a pull, as `sls.decode` gives them with the columns' keys, if it is their turn."""
        self._came += logs.num_rows
        if not logs.num_rows or (self._spent >= FREE and self._spent * SHARE > self._came):
            return
        try:
            self._look(logs)
        except Exception as error:
            _log.warning("keys that no column names were not counted in %d logs: %r", logs.num_rows, error)

    def found(self) -> Unnamed:
        """What was found so far."""
        return Unnamed.total([Unnamed(self._looked, dict(self._logs), self._examples)])

    def _look(self, logs: pa.Table) -> None:
        blocks = _blocks(logs.num_rows)
        self._look_at_keys(flat(logs[REST.name]), blocks)
        for spec in self._structs:
            self._look_at_fields(flat(logs[spec.key]), spec, blocks)
        looked = sum(end - begin for begin, end in blocks)
        self._looked += looked
        # A look at a single log costs, too.
        self._spent += max(looked, BLOCK)
        if len(self._logs) > _PRUNED:
            self._logs = Counter(dict(self._logs.most_common(MOST)))
            self._examples = {key: self._examples[key] for key in self._logs if key in self._examples}

    def _look_at_keys(self, rest: pa.MapArray, blocks: list[tuple[int, int]]) -> None:
        offsets = np.asarray(rest.offsets)
        spans = [(int(offsets[begin]), int(offsets[end])) for begin, end in blocks]
        places = np.concatenate([np.arange(begin, end) for begin, end in spans])
        coded = pa.concat_arrays([rest.keys.slice(begin, end - begin) for begin, end in spans]).dictionary_encode()
        # Each key is in a log's map once, so its pairs are its logs.
        codes = np.asarray(coded.indices)
        counts = np.bincount(codes, minlength=len(coded.dictionary))
        for code in np.argsort(-counts, kind="stable")[:MOST].tolist():
            key = coded.dictionary[code].as_py().decode("utf-8", "backslashreplace")[:LONGEST]
            self._logs[key] += int(counts[code])
            if self._with_values and key not in self._examples:
                self._examples[key] = _examples(key, rest.items, places[codes == code])

    def _look_at_fields(self, values: pa.Array, spec: ColumnSpec, blocks: list[tuple[int, int]]) -> None:
        texts = pa.concat_arrays([values.slice(begin, end - begin) for begin, end in blocks])
        path = "$" if spec.path is None else spec.path
        if spec.path is not None:
            texts, _ = at_path(texts, spec.path)
        type_ = parse_type(spec.type)
        for text in texts.to_pylist():
            fields: dict[str, Any] = {}
            for field_path, value in unnamed_fields(_parsed(text), type_, path):
                fields.setdefault(place_of(spec.key, field_path)[:LONGEST], value)
            self._logs.update(fields.keys())
            for key, value in fields.items() if self._with_values else ():
                examples = self._examples.setdefault(key, [])
                example = _HIDDEN if _SECRET.search(key) else _json_text(value)
                if len(examples) < EXAMPLES and example not in examples:
                    examples.append(example)


def _parsed(text: bytes | None) -> Any:
    """The value of a JSON text; None where it is none, which the column counts as a misfit."""
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None


def _json_text(value: Any) -> str:
    """The begin of a JSON value, for a person: of an object its names alone, whose values may be secrets."""
    if isinstance(value, dict):
        return f"{{{', '.join(map(str, value))}}}"[:SHOWN]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode()[:SHOWN]


def _blocks(count: int) -> list[tuple[int, int]]:
    """Which logs of `count` are looked at: all, or blocks, the first and the last log among them."""
    if count <= BLOCKS * BLOCK:
        return [(0, count)]
    begins = ((count - BLOCK) * number // (BLOCKS - 1) for number in range(BLOCKS))
    return [(begin, begin + BLOCK) for begin in begins]


def _examples(key: str, values: Any, places: Any) -> list[str]:
    """Different values from among these places: the first, and some further on."""
    if _SECRET.search(key):
        return [_HIDDEN]
    chosen = (int(places[len(places) * part // EXAMPLES]) for part in range(EXAMPLES))
    return list(dict.fromkeys(shown(values[place]) or "" for place in chosen))
