"""The scenarios are those of the manual's table; some of them are played."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.browser.errors.rows import NOT_YET, SCENARIOS
from tests.manual import error_rows
from tests.needs import needs_chromium


def test_every_error_of_the_table_has_a_scenario_and_no_scenario_lacks_its_row() -> None:
    found = [name for row in error_rows() for name in row]
    assert len(found) == len(set(found)) > 40
    assert SCENARIOS.keys() | NOT_YET.keys() == set(found)
    assert not SCENARIOS.keys() & NOT_YET.keys()


@pytest.mark.long
@needs_chromium
@pytest.mark.timeout(1200)
def test_three_errors_and_a_pause_are_put_right_from_the_pages() -> None:
    """One by a button, one by what the page's words say, one by nothing at all."""
    # A process of its own, since the browser's loop and laid down rights would stay in this one.
    command = [sys.executable, "-m", "tests.browser.errors", "JobFailed", "CheckFailed", "IllegalTransition", "Paused"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
