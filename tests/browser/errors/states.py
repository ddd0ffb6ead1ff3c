"""What is no error, and asks for a person all the same."""

from __future__ import annotations

import time

from tests.browser.errors.play import Scenarios
from tests.browser.errors.stage import Stage

SCENARIOS = Scenarios()


@SCENARIOS.of("Paused")
def paused(stage: Stage) -> str:
    """Somebody pauses the pipeline, and another person finds it so."""
    stage.before()
    stage.pause()
    stage.put(50)
    page = stage.window.pipeline(stage.name)
    assert stage.window.need == "Paused", page.inner_text("main")
    assert "What to do: resume it." in page.locator("section.status").inner_text()
    assert page.locator("section.status button.primary").inner_text().strip() == "Resume"
    stage.unpause()
    stage.goes_on()
    return "resume"


@SCENARIOS.of("BackfillFailed")
def backfill_failed(stage: Stage) -> str:
    """A backfill asks for a span that is yet to come; asked once more, for what there is, it is well."""
    stage.before()
    stage.put(50)
    _asks(stage, "2099-01-31T08:00:00+08:00", "2099-01-31T09:00:00+08:00")
    page = stage.window.pipeline(stage.name)
    said = page.locator("section.alert").inner_text()
    assert "The last backfill failed" in said and "is yet to come" in said and "What to do:" in said, said
    now = time.time()
    first, last = (time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(now + seconds)) for seconds in (-3600, 3600))
    _asks(stage, first, last, "success")
    stage.is_well()
    assert stage.window.page.locator("section.alert").count() == 0
    return "ask again, for what there is"


def _asks(stage: Stage, first: str, last: str, state: str = "failed") -> None:
    """Fills in and sends the form of the page of backfills; waits until its run has ended in this state."""
    page = stage.window.open(f"/pipelines/{stage.name}/backfill")
    page.get_by_label("From, when the service received it").fill(first)
    page.get_by_label("To, excluded").fill(last)
    run = stage.window.press("read it")
    assert stage.ended(run, stage.operations) == state, stage.explain()
