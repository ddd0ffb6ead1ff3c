_Column = tuple[int, list[bytes | None]]

def decode(
    body: bytes, first: int, keys: list[bytes], most: int
) -> tuple[int, int, list[_Column], tuple[int, bytes, _Column, _Column]]:
    """The logs of a LogGroupList whose first log group has cursor `first`: the columns that every log has, then those
    of `keys`, then the map of what is left.

    The answer: how many log groups and rows; each column's count of NULLs and Arrow's buffers; the map's count of
    entries, offsets, keys and values. Raises ValueError, which says the byte, where the body is malformed, and
    OverflowError where the logs' copies of topics, sources and tags would take more than `most` bytes.
    """

def numbered(prefix: str, separator: str, columns: list[bytes]) -> tuple[bytes, bytes]:
    """Offsets and data of a text per row: `prefix`, then the number of each column, each behind `separator`.

    A column is 64-bit numbers as the machine has them; all are as long as the first.
    """

def shred(
    offsets: bytes, data: bytes, valid: bytes, levels: list[tuple[str, list[tuple[str, int]]]]
) -> list[tuple[bytes, bytes, bytes, bytes, bytes]]:
    """The levels of JSON texts; a text that is no JSON or does not fit is NULL on the first.

    Args:
        offsets, data: the texts, as Arrow's buffers.
        valid: one byte per text, 0 where it is NULL.
        levels: the type's, each its kind ("text", "scalar", "list", "map", "struct") with the names and numbers of the
            levels within, which come later.

    Of each level: one byte per value, 0 where it is NULL; of texts the number of the text that each stands in; of lists
    and maps where each one's items begin, and their count; offsets and data of texts, of maps those of the keys. All
    numbers have 32 bits.
    """

def pick(offsets: bytes, data: bytes, valid: bytes, steps: list[tuple[str | None, int]]) -> tuple[bytes, bytes, bytes]:
    """Offsets and data of what is at a path in JSON texts, and of each 0 where there is nothing, 1 where there is, 2
    where the text is no JSON. A step is a name, or where that is None a place in a list.
    """
