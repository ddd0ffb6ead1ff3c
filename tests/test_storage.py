"""Files of a table, written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_slshudi.exceptions import TimelineUnreadable
from airflow_provider_slshudi.storage import Storage


@pytest.mark.parametrize("via", [None, ".hoodie/slshudi/20260131000000000"])
def test_a_file_that_could_not_be_written_leaves_nothing_behind(tmp_path: Path, via: str | None) -> None:
    storage = Storage(f"file://{tmp_path}")
    # A folder stands where the file is to be, so all but the last step is done.
    in_the_way = tmp_path / ".hoodie" / "slshudi" / "claim.json"
    (in_the_way / "taken").mkdir(parents=True)
    with pytest.raises(TimelineUnreadable, match=r"claim\.json"):
        storage.write(".hoodie/slshudi/claim.json", b"{}", via=via)
    assert list(tmp_path.rglob("*.tmp")) == []
    in_the_way.joinpath("taken").rmdir()
    in_the_way.rmdir()
    storage.write(".hoodie/slshudi/claim.json", b"{}", via=via)
    assert in_the_way.read_bytes() == b"{}"
