"""Cursors: integers inside this package, opaque text on the wire.

The text is the base64 of a decimal integer, and the integer counts log groups
(https://www.alibabacloud.com/help/en/sls/developer-reference/api-sls-2020-12-30-getcursor).
"""

from __future__ import annotations

import base64
import binascii
import re

from airflow_provider_slshudi.exceptions import CursorError

_DECIMAL = re.compile(r"[0-9]{1,19}")
_LARGEST = 2**63 - 1


def parse(text: str) -> int:
    """The cursor that `text` names: base64 (its padding may be missing) or the plain integer, as people type it.

    Raises CursorError.
    """
    digits = text.strip()
    if not _DECIMAL.fullmatch(digits):
        try:
            digits = base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True).decode("ascii")
        except (binascii.Error, ValueError):
            raise CursorError(text) from None
    if not _DECIMAL.fullmatch(digits) or int(digits) > _LARGEST:
        raise CursorError(text)
    return int(digits)


def text(cursor: int) -> str:
    """The text that the service uses for `cursor`. Raises CursorError below 0 and above 63 bits."""
    if not 0 <= cursor <= _LARGEST:
        raise CursorError(str(cursor))
    return base64.b64encode(b"%d" % cursor).decode("ascii")
