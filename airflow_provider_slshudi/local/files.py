"""Small files that a kill leaves whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def replace_text(path: Path, content: str) -> None:
    """Write `content` so that the file always has the old content or the new one, for readers and after a kill."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(content)
    new.replace(path)


def replace_json(path: Path, content: dict[str, Any]) -> None:
    """`replace_text` with JSON."""
    replace_text(path, json.dumps(content, indent=1))
