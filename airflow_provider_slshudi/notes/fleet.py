"""The steps of which the task of a fleet tells the ledger whether they succeed; looks ask for these."""

from __future__ import annotations

BATCH = "batch"
"""The whole of the task, and its name."""
SYNC = "sync"
"""Its call of the catalog, under the name of the tail's own task for that."""
MIRROR = "mirror"
"""Its mirroring, likewise."""
STEPS = (BATCH, SYNC, MIRROR)
