"""The scenarios are those of the manual's table; three of them are played."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.errors.rows import NOT_YET, SCENARIOS
from tests.browser.errors.run import play_all
from tests.browser.errors.window import CHROMIUM
from tests.browser.errors.world import world
from tests.manual import error_rows


def test_every_error_of_the_table_has_a_scenario_and_no_scenario_lacks_its_row() -> None:
    found = [name for row in error_rows() for name in row]
    assert len(found) == len(set(found)) > 40
    assert SCENARIOS.keys() | NOT_YET.keys() == set(found)
    assert not SCENARIOS.keys() & NOT_YET.keys()


@pytest.mark.long
@pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="needs Debian's Chromium")
def test_three_errors_are_put_right_from_the_pages(tmp_path: Path) -> None:
    """One by a button, one by what the page's words say, one by nothing at all."""
    chosen = [SCENARIOS[name] for name in ("JobFailed", "CheckFailed", "IllegalTransition")]
    with world(tmp_path / "world", postgres=False) as made:
        played = play_all(made, chosen)
    assert [str(item) for item in played if item.wrong] == []
