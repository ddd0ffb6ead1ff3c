"""Bugs that are planted to see that worlds find them: what a point's mending put right, the other way round.

A bug is replacements in modules of the package; `tests/site/sitecustomize.py` makes them in every process of a world;
none of them is in the package. A name that is not there any more is an error, not a bug that is never found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Replacement:
    """`module.attribute` is replaced by what `by`, `module:function`, makes of it."""

    module: str
    attribute: str
    by: str

    def __str__(self) -> str:
        return f"{self.module}:{self.attribute}={self.by}"


def _put(module: str, attribute: str, bug: str) -> Replacement:
    return Replacement(f"airflow_provider_slshudi.{module}", attribute, f"tests.worlds.bugs:{bug}")


# The looks at the timeline that would keep a second completion from coming, or put it right.
_TWICE = (
    _put("spark.driver.verbs", "_require_inflight", "nothing"),
    _put("transaction.settle", "_leave_one_completion", "nothing"),
)

PLANTED: Mapping[str, tuple[Replacement, ...]] = {
    # A decision without a fence on the storage, and nobody looks after it: an append that stood still goes on writing.
    "no-fence": (
        _put("handover.batch_files", "Attempt.require_wanted", "nothing"),
        _put("hudi.leftovers", "sweep", "empty"),
    ),
    # Two may decide at once, and a commit's driver never ends.
    "no-lease": (
        _put("ledger.ledger", "Ledger.lease", "no_lease"),
        _put("transaction.context", "commit_seconds", "forever"),
        _put("handover.fencing", "require_claim", "nothing"),
        *_TWICE,
    ),
    # What another ledger committed is not looked for.
    "no-comparison": (
        _put("transaction.evidence", "check_table_against_ledger", "nothing"),
        _put("transaction.evidence", "_require_known", "nothing"),
        _put("transaction.evidence", "refuse_foreign_writes", "nothing"),
        _put("transaction.resolve", "committed_elsewhere", "nothing"),
    ),
    # A late opener's instant stays.
    "no-orphans": (_put("transaction.settle", "_orphans", "empty"),),
    # Drawn zones: instants are in the zone of their writer.
    "local-zone": (_put("hudi.client.clock", "rising", "own_zone"),),
    # Drawn locales: a JVM has that of its host.
    "own-locale": (
        _put("spark.packages", "world", "no_variables"),
        _put("spark.packages", "WORLD_OPTIONS", "no_options"),
        _put("spark.runtime", "require_world", "nothing"),
    ),
    # Drawn users: root works on the table of another.
    "any-owner": (_put("storage.owners", "keeps_out", "nothing"),),
    # A drawn sleep at a commit: only time keeps the driver from completing, and its clock does not count sleep.
    "no-attempt": (
        _put("system.processes", "clock", "monotonic"),
        _put("handover.fencing", "require_claim", "nothing"),
        *_TWICE,
    ),
    # A drawn ledger's clock, ahead in a container that is killed: the lease stays for days.
    "lease-from-the-future": (_put("ledger.lease", "_over", "any_expiry"),),
    # Drawn values of a partition column: those that no folder gives back are written all the same.
    "any-partition": (_put("rows.partitions", "has_folder", "always"),),
    # A kill within a marker's write: Hudi reads the name of what is left.
    "renamed-marker": (
        _put("hudi.files.marking", "mark", "renamed_marker"),
        _put("hudi.markers", "drop_misread", "nothing"),
    ),
    # A drawn table that is not mounted, or an edited path: no table is a table without commits.
    "no-table-no-commits": (_put("transaction.context", "Work.timeline", "bare_timeline"),),
    # A drawn shard that is deleted before it was read: nobody asks what it held.
    "listed-shards-only": (_put("transaction.plan", "_last_windows", "empty"),),
    # A drawn edit of the ledger's connection: only settle compares it with the table, and settle is marked.
    "only-settle-compares": (
        _put("transaction.plan", "require_agreement", "nothing"),
        _put("transaction.steps", "require_known_commits", "nothing"),
        _put("transaction.resolve", "committed_elsewhere", "nothing"),
    ),
}
"""The replacements of each bug."""


def environment_of(name: str | None) -> dict[str, str]:
    """What a process needs in its environment to have the bug."""
    return {"WORLDS_PLANT": " ".join(map(str, PLANTED[name]))} if name else {}
