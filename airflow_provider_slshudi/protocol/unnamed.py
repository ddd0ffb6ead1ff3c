"""Keys of logs that no column names: kept with the batch that saw them, and new ones told once."""

from __future__ import annotations

import logging

from airflow_provider_slshudi.ledger.records import Transaction
from airflow_provider_slshudi.notes.unnamed import Unnamed
from airflow_provider_slshudi.protocol.work import Work

_TOLD = 20
_log = logging.getLogger(__name__)


def keep(work: Work, transaction: Transaction, found: Unnamed) -> None:
    """Keeps what a recorded batch saw, and logs each key that no batch saw before.

    It is for people's eyes: where the ledger does not take it, the batch goes on.
    """
    name, named, kept = transaction.pipeline, work.pipeline.named_keys, work.pipeline.values_kept
    examples = {} if kept is None else found.examples
    try:
        new = work.ledger.saw_keys(name, transaction.id, found.looked, found.logs, examples, named, kept)
    except Exception as error:
        _log.warning("the ledger was not told which keys of logs no column names: %s", error)
        return
    for key in new[:_TOLD]:
        _log.warning("new key, which no column of %s names, so it is dropped: %s", name, key.told)
    if len(new) > _TOLD:
        _log.warning("and %d more: `slshudi schema unnamed %s`", len(new) - _TOLD, name)
