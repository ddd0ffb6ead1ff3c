"""The optional Rust package slshudi-native, and texts made of numbers, one per row, which it writes faster.

All code that uses the package has a slower way without it.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


native: Any = import_module("slshudi_native") if find_spec("slshudi_native") else None
"""The package, None if it is not installed."""
DECODER = "ptars" if native is None else "slshudi-native"
"""The distribution whose decoder is used here."""


def numbered(prefix: str, separator: str, *columns: pa.Array | pa.ChunkedArray) -> pa.Array:
    """`prefix`, then each column's number behind `separator`; columns are whole numbers of one length without NULL.

    Uses slshudi-native if it is installed, which takes a third of the time of Arrow's functions.
    """
    import numpy as np
    import pyarrow as pa

    if native is None:
        return by_arrow(prefix, separator, *columns)
    numbers = [np.asarray(column.to_numpy(), np.int64).tobytes() for column in columns]
    offsets, data = native.numbered(prefix, separator, numbers)
    return pa.StringArray.from_buffers(len(columns[0]), pa.py_buffer(offsets), pa.py_buffer(data), None, 0)


def by_arrow(prefix: str, separator: str, *columns: pa.Array | pa.ChunkedArray) -> pa.Array:
    """`numbered` without slshudi-native."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = [column.cast(pa.string()) for column in columns]
    joined = pc.binary_join_element_wise(pa.scalar(prefix), *texts, separator)
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined
