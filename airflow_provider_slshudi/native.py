"""The optional Rust package slshudi-native; all code that uses it has a slower way without it."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

native: Any = import_module("slshudi_native") if find_spec("slshudi_native") else None
"""The package, None if it is not installed."""
