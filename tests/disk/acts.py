"""The steps whose writes are cut short, each with what has to be there before it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from airflow_provider_slshudi.exceptions import TimelineUnreadable
from airflow_provider_slshudi.hudi.archive import archive_of
from airflow_provider_slshudi.hudi.layout import METADATA_FOLDER
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.repair.abandon import abandon
from airflow_provider_slshudi.storage.files import Storage
from tests.crash.cases import BATCH, SERVICES, Step
from tests.exact.counts import tables
from tests.exact.outcome import Outcome, attempt
from tests.exact.step import Told
from tests.worlds.draw import Drawn, Kind, Trouble
from tests.worlds.exits import put_back
from tests.worlds.place import Line, Places
from tests.worlds.run import World

ABANDON = "abandon"
RUN = "run-1"


@dataclass(frozen=True)
class Act:
    """A step of a kind of table.

    Attributes:
        step: the step, or `ABANDON`.
        before: steps of the same run that are done before it, of a run that is over where `step` decides a batch.
    """

    kind: Kind
    step: str
    before: tuple[Step, ...] = ()

    @property
    def name(self) -> str:
        """The act as the command line takes it."""
        state = f"-after-{self.before[-1].value}" if self.step in DECIDING else ""
        return f"{self.kind.name.lower()}-{self.step}{state}"

    @property
    def commits(self) -> bool:
        """Whether the batch is committed by it."""
        return self.step == Step.COMMIT.value or (self.step == Step.SETTLE.value and Step.RECORD in self.before)

    @property
    def serves(self) -> bool:
        """Whether it is a table service, which has something to do once a few batches were committed."""
        return self.step in {service.value for service in SERVICES}


DECIDING = (Step.SETTLE.value, ABANDON)
_STARTED = BATCH[1:]


def _acts() -> Iterator[Act]:
    for kind in (Kind.APPEND, Kind.MERGE, Kind.COPY):
        for number, step in enumerate(_STARTED):
            yield Act(kind, step.value, _STARTED[:number])
        for last in (3, 4):
            yield Act(kind, Step.SETTLE.value, _STARTED[:last])
            yield Act(kind, ABANDON, _STARTED[:last])
        rewriting = {Kind.APPEND: [Step.CLUSTER], Kind.MERGE: [Step.COMPACT]}.get(kind, [])
        for service in (*rewriting, Step.CLEAN, Step.ARCHIVE, Step.METADATA):
            yield Act(kind, service.value)


ACTS = {act.name: act for act in _acts()}


@contextmanager
def stage(places: Places, act: Act, pages: int = 0, *, ledger_disk: bool = False) -> Iterator[tuple[World, Told]]:
    """A world in which the act comes next, and what is known of the batch at work."""
    first = Step(act.step) if act.step != ABANDON else Step.SETTLE
    drawn = Drawn(pages, act.kind, first, Trouble.FULL, pages=pages, ledger_disk=ledger_disk)
    with places.line(drawn) as line:
        world = World(line, Outcome())
        told = Told()
        if not act.serves:
            line.put()
            told = world.here([step.value for step in act.before], "run-0" if act.step in DECIDING else RUN, told)
            if not told.ok:
                raise RuntimeError(f"{act.name}: what comes before it failed: {told}")
        yield world, told


def carry_out(world: World, act: Act, told: Told) -> Told:
    """Carries the act out, here."""
    if act.step != ABANDON:
        return world.here([act.step], RUN, told)
    try:
        abandon(world.line.work(RUN), told.transaction, "its disk is full")
    except Exception as error:
        return replace(told, done=()).ended_by(error)
    return replace(told, done=(ABANDON,))


def _ask_archives(line: Line) -> None:
    """Reads all archives, and puts a file back that was cut off where its reader asks for that.

    No step reads an archive's file before it needs an instant of it.
    """
    if not line.backup:
        return
    own = tables(line.work("run-5x"))
    for table in (*own, *(Storage(f"{table.uri}/{METADATA_FOLDER}") for table in own)):
        try:
            deque(archive_of(table, Timeline.load(table).layout).instants(), maxlen=0)
        except TimelineUnreadable as error:
            if "back from the storage's versions" not in str(error):
                raise
            put_back(line)


def end(world: World, act: Act, name: str) -> Outcome:
    """Goes on as pipelines do, with the commands that errors name, and counts what is there in the end."""

    def carry_out(outcome: Outcome) -> None:
        world.settled("run-2")
        if act.serves:
            world.served("run-2s")
        world.line.put(10)
        world.settled("run-4")
        world.served("run-5", Step.ARCHIVE)
        world.line.put(10)
        world.healthy("run-6")
        _ask_archives(world.line)
        world.count()
        outcome.figures["left"] += any("left" in fault or "no commit lists" in fault for fault in outcome.wrong)

    return attempt(f"{act.name}, {name}", carry_out, world.ended)
