"""All scenarios: those of the rows of the manual's table, and those of no error."""

from __future__ import annotations

from collections.abc import Mapping

from tests.browser.errors import buttons, mirrors, outside, passing, shared, states
from tests.browser.errors.play import Scenario

SCENARIOS: Mapping[str, Scenario] = {
    **buttons.SCENARIOS,
    **passing.SCENARIOS,
    **outside.SCENARIOS,
    **shared.SCENARIOS,
    **mirrors.SCENARIOS,
}
STATES: Mapping[str, Scenario] = states.SCENARIOS
NOT_YET: Mapping[str, str] = {
    "LedgerEmpty": "before the first run there is no page but the first, which says so: test_ledgers.py",
    **dict.fromkeys(
        ("ConsumerUnderWay", "ConsumerFenced", "ConsumerBehind"),
        "they fail DAGs of consumers, which are no pipeline's; tests/ledger and tests/airflow/hooks make them",
    ),
    "TableSilent": "a mount that never answers takes root and FUSE; tests/airflow/test_fleet.py makes one",
}
"""Errors that nobody has made for real under Airflow, and why."""
