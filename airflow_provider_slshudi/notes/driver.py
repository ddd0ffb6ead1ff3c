"""Which driver may change a table's timeline: `claim.json` names it."""

from __future__ import annotations

import json
import uuid

from airflow_provider_slshudi.exceptions import TableError
from airflow_provider_slshudi.notes import ROOT
from airflow_provider_slshudi.storage import Storage

_CLAIM = f"{ROOT}/claim.json"


def claim(storage: Storage, **who: str) -> str:
    """Lets one driver, and no other, change the table's timeline from now on; returns the claim's name.

    For the holder of the pipeline's lease. A former holder's driver that is still alive, also by a wrong clock, finds
    that the claim is not its own. `who` is for people.
    """
    name = uuid.uuid4().hex
    storage.write(_CLAIM, json.dumps({"claim": name, **who}).encode())
    return name


def require_claim(storage: Storage, name: str, what: str) -> None:
    """Checks that the timeline may still be changed under a claim; call it as late as possible.

    Raises:
        TableError: another driver has claimed it since.
    """
    found: dict[str, str] = storage.read_json(_CLAIM) or {}
    if found.get("claim") != name:
        others = ", ".join(f"{key} {value}" for key, value in found.items() if key != "claim") or "no driver"
        raise TableError(
            f"{storage.uri}: this driver may not {what} any more, and did nothing: {_CLAIM} names another ({others})",
            table=storage.uri,
        )
