"""A snapshot of Iceberg that replaces files, at a cost that does not grow with the number of snapshots before it.

`overwrite()` of pyiceberg 0.12.0 merges no manifests, and reads and keeps for good those that only say what was deleted
once: 0.4 CPU seconds a commit after 90 upserts. `merge_append()` does both right, and deletes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Transaction


def replacing(change: Transaction, io: FileIO, summary: Mapping[str, str]) -> Any:
    """The producer of such a snapshot, as `change.update_snapshot().overwrite()` makes one."""
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table.snapshots import Operation
    from pyiceberg.table.update.snapshot import _MergeAppendFiles, _OverwriteFiles

    class Replacing(_OverwriteFiles, _MergeAppendFiles):
        """Deletes as the first does, and merges manifests as the second."""

        def _existing_manifests(self) -> list[ManifestFile]:
            found = super()._existing_manifests()
            return [one for one in found if one.has_added_files() or one.has_existing_files()]

    return Replacing(operation=Operation.OVERWRITE, transaction=change, io=io, snapshot_properties=dict(summary))
