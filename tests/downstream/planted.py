"""Guards of completeness, each left out, to see that drawn histories find it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

PLANTED: Mapping[str, Callable[[pytest.MonkeyPatch], None]] = {}
