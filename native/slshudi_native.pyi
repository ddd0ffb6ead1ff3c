_Column = tuple[int, list[bytes | None]]

def decode(
    body: bytes, first: int, keys: list[bytes]
) -> tuple[int, int, list[_Column], tuple[int, bytes, _Column, _Column]]:
    """The logs of a LogGroupList whose first log group has cursor `first`: the columns that every log has, then those
    of `keys`, then the map of what is left.

    The answer: how many log groups and rows; each column's count of NULLs and Arrow's buffers; the map's count of
    entries, offsets, keys and values. Raises ValueError, which says the byte, where the body is malformed.
    """

def numbered(prefix: str, separator: str, columns: list[bytes]) -> tuple[bytes, bytes]:
    """Offsets and data of a text per row: `prefix`, then the number of each column, each behind `separator`.

    A column is 64-bit numbers as the machine has them; all are as long as the first.
    """
