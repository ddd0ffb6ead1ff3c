"""What the pipeline's checks found, and whether the batch may go on."""

from __future__ import annotations

import logging
import time

from airflow_provider_slshudi.exceptions import CheckFailed
from airflow_provider_slshudi.hudi.exchange import CheckResult, Manifest
from airflow_provider_slshudi.job.checks import check_result
from airflow_provider_slshudi.ledger.records import Transaction
from airflow_provider_slshudi.ledger.states import Kind
from airflow_provider_slshudi.protocol.work import Work

_log = logging.getLogger(__name__)


def judge(work: Work, transaction: Transaction, manifest: Manifest) -> dict[str, str]:
    """The checks that only warn and did not pass, by name, with what was found.

    Raises:
        CheckFailed: one that may not did not pass.
    """
    failed = [item for item in [*manifest.checks, *_freshness(work, transaction, manifest)] if not item.passed]
    warned = {item.name: item.found for item in failed if item.warns}
    for name, found in warned.items():
        _log.warning("check %s: %s", name, found)
    refused = {item.name: item.found for item in failed if not item.warns}
    if refused:
        raise CheckFailed(
            f"pipeline {work.pipeline.name}: the batch of transaction {transaction.id} is not committed: "
            + "; ".join(f"check {name}: {found}" for name, found in refused.items())
            + ". Its ranges are read again by the next run: mend the source, or the check in the pipeline file",
            pipeline=work.pipeline.name,
            transaction=transaction.id,
            checks=refused,
        )
    return warned


def _freshness(work: Work, transaction: Transaction, manifest: Manifest) -> list[CheckResult]:
    """What a backfill reads is old."""
    newest = max((done.last_time for done in manifest.ranges if done.last_time is not None), default=None)
    if newest is None or transaction.kind is not Kind.TAIL:
        return []
    age = round(time.time() - newest)
    return [
        check_result(check, age <= check.seconds, f"the newest log is {age} s old, asked for is {check.freshness}")
        for check in work.pipeline.checks
        if check.freshness is not None
    ]
