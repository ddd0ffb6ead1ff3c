"""Bugs that are planted to see that worlds find them: what a point's mending put right, the other way round.

A bug is replacements in modules of the package, which `site/sitecustomize.py` carries out in every process of a world;
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


_PACKAGE = "airflow_provider_slshudi"
_PROTOCOL = f"{_PACKAGE}.protocol"
_BUGS = "tests.worlds.bugs"

# The looks at the timeline that would keep a second completion from coming, or put it right.
_TWICE = (
    Replacement(f"{_PACKAGE}.job.verbs", "_require_inflight", f"{_BUGS}:nothing"),
    Replacement(f"{_PROTOCOL}.settle", "_leave_one_completion", f"{_BUGS}:nothing"),
)

PLANTED: Mapping[str, tuple[Replacement, ...]] = {
    # A decision without a fence on the storage, and nobody looks after it: an append that stood still goes on writing.
    "no-fence": (
        Replacement(f"{_PACKAGE}.hudi.exchange", "require_order", f"{_BUGS}:nothing"),
        Replacement(f"{_PACKAGE}.hudi.leftovers", "sweep", f"{_BUGS}:empty"),
    ),
    # Two may decide at once, and a commit's driver never ends.
    "no-lease": (
        Replacement(f"{_PACKAGE}.ledger.ledger", "Ledger.lease", f"{_BUGS}:no_lease"),
        Replacement(f"{_PROTOCOL}.work", "commit_seconds", f"{_BUGS}:forever"),
        Replacement(f"{_PACKAGE}.hudi.exchange", "require_claim", f"{_BUGS}:nothing"),
        *_TWICE,
    ),
    # What another ledger committed is not looked for.
    "no-comparison": (
        Replacement(f"{_PROTOCOL}.evidence", "check_table_against_ledger", f"{_BUGS}:nothing"),
        Replacement(f"{_PROTOCOL}.evidence", "_require_known", f"{_BUGS}:nothing"),
        Replacement(f"{_PROTOCOL}.evidence", "refuse_foreign_writes", f"{_BUGS}:nothing"),
        Replacement(f"{_PROTOCOL}.resolve", "committed_elsewhere", f"{_BUGS}:nothing"),
    ),
    # A late opener's instant stays.
    "no-orphans": (Replacement(f"{_PROTOCOL}.settle", "_orphans", f"{_BUGS}:empty"),),
    # Drawn zones: instants are in the zone of their writer.
    "local-zone": (Replacement(f"{_PACKAGE}.hudi.clock", "rising", f"{_BUGS}:own_zone"),),
    # Drawn locales: a JVM has that of its host.
    "own-locale": (
        Replacement(f"{_PACKAGE}.hudi.packages", "world", f"{_BUGS}:no_variables"),
        Replacement(f"{_PACKAGE}.hudi.packages", "WORLD_OPTIONS", f"{_BUGS}:no_options"),
        Replacement(f"{_PACKAGE}.hudi.runtime", "require_world", f"{_BUGS}:nothing"),
    ),
    # Drawn users: root works on the table of another.
    "any-owner": (Replacement(f"{_PACKAGE}.owners", "keeps_out", f"{_BUGS}:nothing"),),
    # A drawn sleep at a commit: only time keeps the driver from completing, and its clock does not count sleep.
    "no-claim": (
        Replacement(f"{_PACKAGE}.processes", "clock", f"{_BUGS}:monotonic"),
        Replacement(f"{_PACKAGE}.hudi.exchange", "require_claim", f"{_BUGS}:nothing"),
        *_TWICE,
    ),
    # A drawn ledger's clock, ahead in a container that is killed: the lease stays for days.
    "lease-from-the-future": (Replacement(f"{_PACKAGE}.ledger.lease", "_over", f"{_BUGS}:any_expiry"),),
    # Drawn values of a partition column: those that no folder gives back are written all the same.
    "any-partition": (Replacement(f"{_PACKAGE}.hudi.basefile", "has_folder", f"{_BUGS}:always"),),
    # A kill within a marker's write: Hudi reads the name of what is left.
    "renamed-marker": (
        Replacement(f"{_PACKAGE}.hudi.marking", "mark", f"{_BUGS}:renamed_marker"),
        Replacement(f"{_PACKAGE}.hudi.marking", "drop_misread", f"{_BUGS}:nothing"),
    ),
    # A drawn table that is not mounted, or an edited path: no table is a table without commits.
    "no-table-no-commits": (Replacement(f"{_PROTOCOL}.work", "Work.timeline", f"{_BUGS}:bare_timeline"),),
    # A drawn shard that is deleted before it was read: nobody asks what it held.
    "listed-shards-only": (Replacement(f"{_PROTOCOL}.plan", "_last_windows", f"{_BUGS}:empty"),),
    # A drawn edit of the ledger's connection: only settle compares it with the table, and settle is marked.
    "only-settle-compares": (
        Replacement(f"{_PROTOCOL}.plan", "require_agreement", f"{_BUGS}:nothing"),
        Replacement(f"{_PROTOCOL}.steps", "require_known_commits", f"{_BUGS}:nothing"),
        Replacement(f"{_PROTOCOL}.resolve", "committed_elsewhere", f"{_BUGS}:nothing"),
    ),
}
"""The replacements of each bug."""


def environment_of(name: str | None) -> dict[str, str]:
    """What a process needs in its environment to have the bug."""
    return {"WORLDS_PLANT": " ".join(map(str, PLANTED[name]))} if name else {}
