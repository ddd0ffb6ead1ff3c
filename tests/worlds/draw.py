"""What a seed stands for: the choices of one world, in a few words each."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any
from urllib.parse import quote

from airflow_provider_slshudi.rows.partitions import has_folder
from airflow_provider_slshudi.system.points import Point
from tests.crash.cases import BATCH, SERVICES, Step, Victim, all_cases
from tests.worlds.nasty import FOLDERS, VALUES


class Kind(str, Enum):
    """The table of a world."""

    APPEND = "append"
    FIELD = "append by field"
    MERGE = "upsert, merge on read"
    COPY = "upsert, copy on write"

    @property
    def upserts(self) -> bool:
        """Whether logs have keys."""
        return self in (Kind.MERGE, Kind.COPY)


class Trouble(str, Enum):
    """What happens at the drawn step."""

    NONE = "nothing"
    KILL = "killed"
    PAUSE = "paused while somebody else decides"
    SLEEP = "asleep while somebody else decides"
    FULL = "disk full"
    INODES = "no inodes"
    READ_ONLY = "writes refused"
    TWICE = "carried out twice"
    SKIPPED = "skipped"
    EARLY = "carried out before its turn"
    FORGOTTEN = "run forgotten after it"
    RIVAL = "decided by another run after it"
    TWIN = "another Airflow's run of the same name after it"
    NO_TABLE = "table not mounted"
    OTHER_PATH = "path edited"
    OTHER_LOGSTORE = "logstore edited"
    OTHER_LEDGER = "ledger's connection edited"
    LEDGER_BETWEEN = "ledger's connection edited after settle, tasks marked"
    MORE_COLUMNS = "column added"
    LESS_COLUMNS = "column taken away"


AT_POINT = (Trouble.KILL, Trouble.PAUSE, Trouble.SLEEP, Trouble.FULL, Trouble.INODES, Trouble.READ_ONLY)
"""Troubles of a process that is held at a point."""
DISKS = (Trouble.FULL, Trouble.INODES, Trouble.READ_ONLY)
STANDING = (Trouble.PAUSE, Trouble.SLEEP)


class Shards(str, Enum):
    """What becomes of the logstore's shards before the drawn batch."""

    NONE = "as they were"
    SPLIT = "one split"
    MERGED = "two merged"
    SPLIT_READ_GONE = "one split, read and deleted"
    SPLIT_UNREAD_GONE = "one split and deleted before it was read"
    EXPIRED = "all that is unread expired"
    EDGE = "the oldest that was planned expires before it is read"


@dataclass(frozen=True)
class Host:
    """The machine, container, user and settings that a step works with; the first of each is as at home.

    Attributes:
        clock: seconds that its clock is ahead, JVM included.
        ledger_clock: seconds that the clock of Python alone is ahead, so what a SQLite ledger takes for now.
        uid: the user; 0 is root.
        moved: the package's code lies elsewhere.
        resident: drivers that stay.
        python: which of the interpreters that WORLDS_PYTHONS names, from 1 on; 0 is the one here.
    """

    zone: str = "UTC"
    language: str = "C.UTF-8"
    clock: int = 0
    ledger_clock: int = 0
    container: bool = False
    uid: int = 0
    umask: int = 0o022
    moved: bool = False
    resident: bool = False
    session: bool = False
    python: int = 0

    def __str__(self) -> str:
        return shown(self) or "like home"


HOME = Host()


@dataclass(frozen=True)
class Drawn:
    """The choices of one world.

    Attributes:
        act: the step in whose time the trouble happens, carried out at `host`.
        early: another step of the same run that is carried out at `host`, too.
        owner: who carries out all other steps; None is this process and its session.
        service: what is carried out at home once all is decided, before the healthy batch.
        prepared: whether a batch stays PREPARED beside a service.
        keyless: whether a log without a key is put once the trouble is over.
        ledger_disk: whether a disk that takes no more is the ledger's, not the table's.
        pages: how many pages of 4 KiB a full disk still takes.
        pooler: whether the ledger is a PostgreSQL behind pgbouncer, which lends its sessions by the transaction.
    """

    seed: int
    kind: Kind
    act: Step
    trouble: Trouble = Trouble.NONE
    point: Point | None = None
    victim: Victim | None = None
    host: Host = HOME
    early: Step | None = None
    owner: Host | None = None
    folder: str = "table"
    values: tuple[str, ...] = ("Ulm",)
    shards: Shards = Shards.NONE
    service: Step | None = None
    prepared: bool = False
    keyless: bool = False
    ledger_disk: bool = False
    pages: int = 0
    pooler: bool = False

    @property
    def ordered(self) -> bool:
        """Whether rows are merged by a column, and not by the order in which their changes were put."""
        return not (self.kind.upserts and self.shards is not Shards.NONE)

    @property
    def history(self) -> bool:
        """Whether services need something to do."""
        return self.act in SERVICES or self.service is not None

    def __str__(self) -> str:
        return shown(self)


def shown(drawn: Any) -> str:
    """What differs from the plainest world, in one line."""
    said = []
    for field in fields(drawn):
        value = getattr(drawn, field.name)
        if value != field.default:
            text = value.value if isinstance(value, Enum) else oct(value) if field.name == "umask" else value
            if field.name == "values":
                text = [item if len(item) < 20 else f"{item[:3]}*{len(item)}" for item in value]
            said.append(f"{field.name}={text}")
    return ", ".join(said)


ZONES = ("UTC", "Asia/Shanghai", "America/New_York", "Pacific/Kiritimati")
LANGUAGES = ("C.UTF-8", "C", "tr_TR.UTF-8", "xx_XX.UTF-8")
CLOCKS = (-86_400, -3_600, -90, -3, 3, 20)
LEDGER_CLOCKS = (-3_600, -700, 700, 3_600, 400 * 86_400)
_NAMELESS = 12_345
_USERS = (33, 33, _NAMELESS)
_HANDS = (Trouble.TWICE, Trouble.SKIPPED, Trouble.EARLY, Trouble.FORGOTTEN, Trouble.RIVAL)
_EDITS = (Trouble.NO_TABLE, Trouble.OTHER_PATH, Trouble.OTHER_LOGSTORE, Trouble.OTHER_LEDGER, Trouble.LEDGER_BETWEEN)
_SHARDS = tuple(shards for shards in Shards if shards not in (Shards.NONE, Shards.EDGE))
_SHARDS_OF_UPSERTS = (Shards.SPLIT, Shards.MERGED, Shards.SPLIT_READ_GONE)
_EDITS_OF_COLUMNS = (Trouble.MORE_COLUMNS, Trouble.LESS_COLUMNS)
_APPENDS_ONLY = {Point.APPEND_TASK_STAGED, *(point for point in Point if "quarantine" in point.value)}


def draw(seed: int) -> Drawn:
    """The world of a seed."""
    rng = random.Random(seed)
    kind = rng.choices(list(Kind), (3, 4, 2, 2))[0]
    drawn = Drawn(seed, kind, _step(rng, kind))
    drawn = replace(drawn, folder=rng.choice(FOLDERS) if rng.random() < 0.4 else "table")
    if kind is not Kind.APPEND:
        fit = [value for value in VALUES if not kind.upserts or _upserted(value)]
        drawn = replace(drawn, values=tuple(rng.sample(fit, rng.randrange(1, 7))))
    if rng.random() < 0.05:
        return _users(rng, drawn)
    drawn = _troubled(rng, drawn)
    drawn = replace(drawn, host=_host(rng, drawn))
    if drawn.act in BATCH[2:] and rng.random() < 0.25:
        drawn = replace(drawn, early=rng.choice([step for step in BATCH[2:] if step is not drawn.act]))
    if kind in (Kind.APPEND, Kind.FIELD) and drawn.act in BATCH and rng.random() < 0.2:
        drawn = replace(drawn, shards=rng.choice(_SHARDS))
    if drawn.act in SERVICES:
        drawn = replace(drawn, prepared=rng.random() < 0.5)
    elif rng.random() < 0.15:
        drawn = replace(drawn, service=rng.choice([Step.ARCHIVE, Step.CLEAN, Step.METADATA]))
    drawn = replace(drawn, keyless=kind.upserts and rng.random() < 0.05)
    drawn = replace(drawn, host=replace(drawn.host, python=rng.choice((0, 0, 0, 1, 2))))
    if drawn.victim in (Victim.TASK, Victim.JVM) and rng.random() < 0.15:
        # Nobody can ask after it, and its lease may be from the future.
        host = replace(drawn.host, container=True, clock=0, ledger_clock=LEDGER_CLOCKS[-1], resident=False)
        drawn = replace(drawn, host=host)
    # What is open for writing, as the ledger is, cannot be mounted for reading alone.
    fills = drawn.trouble in (Trouble.FULL, Trouble.INODES)
    drawn = replace(drawn, ledger_disk=fills and rng.random() < 0.4)
    return _later(random.Random(f"{seed}, later draws"), drawn)


def _later(rng: random.Random, drawn: Drawn) -> Drawn:
    """What was added to the draws of a seed; by numbers of its own, so that a seed goes on to stand for its world."""
    if drawn.trouble is Trouble.FULL:
        drawn = replace(drawn, pages=rng.choice((0, rng.randrange(1, 9), rng.randrange(1, 65))))
    elif drawn.trouble is Trouble.NONE and drawn.act in BATCH[2:] and rng.random() < 0.25:
        drawn = replace(drawn, trouble=Trouble.TWIN)
    if drawn.act in BATCH and drawn.shards is Shards.NONE and drawn.owner is None:
        if drawn.kind.upserts and rng.random() < 0.25:
            drawn = replace(drawn, shards=rng.choice(_SHARDS_OF_UPSERTS))
        elif not drawn.kind.upserts and drawn.act in (Step.OPEN, Step.APPEND) and rng.random() < 0.25:
            drawn = replace(drawn, shards=Shards.EDGE)
    if drawn.trouble is Trouble.TWIN or drawn.host.resident:
        # Two Airflows have one ledger, whose clock is one; a process that stays goes by the times of files, too.
        drawn = replace(drawn, host=replace(drawn.host, ledger_clock=0))
    # A log without a key is put for the next batch, and a split shard takes several.
    drawn = replace(drawn, keyless=drawn.keyless and drawn.shards is Shards.NONE)
    return replace(drawn, pooler=_may_be_pooled(drawn) and rng.random() < 0.15)


def _may_be_pooled(drawn: Drawn) -> bool:
    """Whether the world asks nothing of its ledger that only a file of SQLite can have."""
    plain = drawn.owner is None and not (drawn.host.uid or drawn.host.clock or drawn.host.ledger_clock)
    return plain and not drawn.ledger_disk and drawn.trouble not in (Trouble.OTHER_LEDGER, Trouble.LEDGER_BETWEEN)


def _upserted(value: str) -> bool:
    """Whether rows can be merged by a value; logs with others become rows of no partition, which the model is not."""
    return "\0" not in value and has_folder("region", value) and len(quote(value)) < 200


def _step(rng: random.Random, kind: Kind) -> Step:
    weights = {
        Step.SETTLE: 3,
        Step.PLAN: 1,
        Step.OPEN: 2,
        Step.APPEND: 4,
        Step.RECORD: 1,
        Step.COMMIT: 4,
        Step.ARCHIVE: 2,
        Step.CLEAN: 1,
        Step.METADATA: 1,
        Step.CLUSTER: 0 if kind.upserts else 1,
        Step.COMPACT: 2 if kind is Kind.MERGE else 0,
    }
    return rng.choices(list(weights), list(weights.values()))[0]


def _users(rng: random.Random, drawn: Drawn) -> Drawn:
    """A table of a user's, root or another user in between."""
    uid = rng.choice(_USERS)
    # A session of the tests' own is not prepared for a user without a name, as the package's drivers are.
    owner = Host(uid=uid, umask=rng.choice([0o022, 0o077, 0o002]), session=uid != _NAMELESS)
    between = rng.choice([HOME, Host(uid=65_534)])
    act = rng.choice([Step.METADATA, Step.ARCHIVE, Step.CLEAN, Step.SETTLE, Step.COMMIT, Step.APPEND])
    return replace(drawn, act=act, owner=owner, host=between)


def _troubled(rng: random.Random, drawn: Drawn) -> Drawn:
    chosen: list[Trouble] = [Trouble.NONE] * 4 + [Trouble.KILL] * 4 + [Trouble.PAUSE, Trouble.SLEEP] * 2 + [*DISKS]
    if drawn.act in BATCH:
        chosen += rng.sample(_HANDS, 3) + rng.sample(_EDITS, 3) + [rng.choice(_EDITS_OF_COLUMNS)]
    drawn = replace(drawn, trouble=rng.choice(chosen))
    if drawn.trouble not in AT_POINT:
        return drawn
    cases = [
        case
        for case in all_cases()
        if case.step is drawn.act
        and case.victim is not Victim.SCHEDULER
        and not (drawn.kind.upserts and case.point in _APPENDS_ONLY)
        # A rollback of a rewriting needs a dead one first: the matrix has these.
        and not (drawn.act in SERVICES and case.point.value.startswith("rollback"))
    ]
    case = rng.choice(cases)
    return replace(drawn, point=case.point, victim=case.victim if drawn.trouble is Trouble.KILL else None)


def _host(rng: random.Random, drawn: Drawn) -> Host:
    host = Host()
    if rng.random() < 0.45:
        host = replace(host, zone=rng.choice(ZONES[1:]))
    if rng.random() < 0.4:
        host = replace(host, language=rng.choice(LANGUAGES[1:]))
    if rng.random() < 0.15:
        host = replace(host, clock=rng.choice(CLOCKS))
    elif rng.random() < 0.2:
        host = replace(host, ledger_clock=rng.choice(LEDGER_CLOCKS))
    if drawn.victim is not Victim.WORKER and rng.random() < 0.15:
        host = replace(host, container=True)
    if rng.random() < 0.1:
        host = replace(host, umask=rng.choice([0o077, 0o000, 0o027]))
    host = replace(host, moved=rng.random() < 0.1)
    return replace(host, resident=drawn.trouble not in AT_POINT and rng.random() < 0.15)
