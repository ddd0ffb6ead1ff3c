"""What each error asks of a person: the pages and the manual know the same errors."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from airflow_provider_slshudi import exceptions
from airflow_provider_slshudi.handover.names import Act
from airflow_provider_slshudi.hooks.connections import ConnectionMissing
from airflow_provider_slshudi.ledger.records import AuditEntry
from airflow_provider_slshudi.views.advice import ADVICE, UNKNOWN, advice, remedy
from tests.manual import error_rows

_BASES = {"MirrorError", "SlsHudiError", "TransientError", "TerminalError", "SourceError", "LedgerError"}


def manual() -> set[str]:
    """The errors of the manual's table."""
    return {name for row in error_rows() for name in row}


def test_each_row_of_the_manual_has_an_advice_and_no_advice_lacks_its_row() -> None:
    assert len(manual()) > 30
    assert manual() == set(ADVICE)


def test_each_error_of_the_package_has_one() -> None:
    named = {
        name
        for name, found in vars(exceptions).items()
        if isinstance(found, type) and issubclass(found, exceptions.SlsHudiError)
    }
    assert (named - _BASES) | {ConnectionMissing.__name__} == set(ADVICE)


@pytest.mark.parametrize("error", sorted(ADVICE))
def test_each_offers_something_or_says_what_to_do(error: str) -> None:
    found = advice(error)
    assert found.text.endswith(".")
    assert set(found.acts) <= set(Act)
    if found.text.startswith("Nothing: it passes") or "Nothing here" in found.text:
        assert not (found.acts or found.run)


def test_an_error_of_nobodys_asks_to_read_it() -> None:
    assert advice("ZeroDivisionError") is UNKNOWN


@pytest.mark.parametrize(
    ("result", "offered"),
    [
        ("RangesDoubled: file:///lake/clicks: 1 commits repeat ranges", (Act.REBUILD_LEDGER,)),
        ("ReplayUnderWay: replay 20260131T080000-1 is OPEN", (Act.RECOVER,)),
        ("20260131T080000-1: RECOMMIT", None),
        (None, None),
    ],
)
def test_an_act_that_failed_offers_what_its_error_asks_for(result: str | None, offered: tuple[Act, ...] | None) -> None:
    now = datetime.now(timezone.utc)
    found = remedy(
        AuditEntry("clicks", now, "rebuild-ledger", "ada", "it says so", "clicks_repair/run-1", None, result)
    )
    assert (found and found.acts) == offered


def test_each_act_is_offered_somewhere() -> None:
    offered = {act for item in ADVICE.values() for act in item.acts}
    # A live batch's page offers to give it up, each failure's to forget it; the quarantine is no error.
    assert offered | {Act.ABANDON, Act.DISMISS, Act.REPLAY} == set(Act)
