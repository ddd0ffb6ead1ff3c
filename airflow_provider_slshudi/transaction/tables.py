"""The tables that a transaction writes: the pipeline's, whose instant decides, and those beside it, which follow.

A batch has the same instant in each of them. A table beside has no owner of an instant recorded: its part is committed
or rolled back as the main table's is.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from airflow_provider_slshudi.handover import ROOT, batch_files, fencing
from airflow_provider_slshudi.handover.batch_files import QUARANTINE, ROUTE
from airflow_provider_slshudi.hudi import leftovers
from airflow_provider_slshudi.hudi.beside import Place, route_keys
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger.lease import Lease
from airflow_provider_slshudi.ledger.records import Transaction
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.transaction import timeline_view
from airflow_provider_slshudi.transaction.beside import Look, TableBeside
from airflow_provider_slshudi.transaction.context import Work


@dataclass(frozen=True)
class Timelines:
    """The timelines of a transaction's tables as one look saw them: the main table's, and one look a table beside."""

    main: Timeline
    beside: Sequence[Look]

    def __iter__(self) -> Iterator[Timeline]:
        yield self.main
        yield from (look.timeline for look in self.beside)


@dataclass(frozen=True)
class _Beside:
    """A table beside as a survey found it: its storage, where such tables were made, and whether it may be there."""

    storage: Storage
    places: Sequence[Place]
    may_exist: bool


@dataclass(frozen=True)
class Survey:
    """Which of a transaction's tables there are, before their timelines are read."""

    tables: TransactionTables
    beside: Sequence[_Beside]

    @property
    def storages(self) -> list[Storage]:
        """The main table's storage, and that of each table beside which there may be."""
        return [self.tables.work.storage, *(table.storage for table in self.beside if table.may_exist)]

    def timelines(self) -> Timelines:
        """Reads the timelines; the ledger keeps what the main table's shows.

        Raises:
            TimelineUnreadable: see `Work.timeline`.
        """
        looks = [
            Look(Timeline.load(table.storage) if table.may_exist else Timeline(table.storage, {}), table.places)
            for table in self.beside
        ]
        return Timelines(timeline_view.timeline(self.tables.work), looks)


@dataclass(frozen=True)
class TransactionTables:
    """The main table of a pipeline and the tables beside it, for questions and acts that concern all of them."""

    work: Work
    beside: Sequence[TableBeside]

    @classmethod
    def of(cls, work: Work, instant: str | None = None) -> TransactionTables:
        """The tables of a pipeline's transactions.

        Args:
            work: the pipeline's.
            instant: of a batch that is decided: tables count, too, that it was opened with and the file has no more.
        """
        keys = (QUARANTINE, *route_keys(work.pipeline))
        owner = batch_files.read_owner(work.storage, instant) if instant else None
        former = {} if owner is None else {key: path for key, path in owner.beside.items() if key not in keys}
        tables = [TableBeside(work, key) for key in keys]
        return cls(work, (*tables, *(TableBeside(work, key, path) for key, path in former.items())))

    @classmethod
    def ever(cls, work: Work) -> TransactionTables:
        """As `of`, with the tables of routes that the pipeline's file had before; lists the main table's notes."""
        present = cls.of(work)
        keys = {table.key for table in present.beside}
        names = (name for name in work.storage.names(ROOT) or [] if name.startswith(ROUTE) and name not in keys)
        former = [(name, TableBeside(work, name).places()) for name in sorted(names)]
        tables = (TableBeside(work, name, places[-1].storage.uri) for name, places in former if places)
        return cls(work, (*present.beside, *tables))

    def storages(self, instant: str | None = None) -> list[Storage]:
        """The storage of each table; with `instant`, those that the instant was opened with."""
        return [self.work.storage, *(table.storage(instant) for table in self.beside)]

    def survey(self) -> Survey:
        """Which of the tables there may be."""
        beside = []
        for table in self.beside:
            storage, places = table.storage(), table.places()
            beside.append(_Beside(storage, places, table.may_exist(places, storage)))
        return Survey(self, beside)

    def require_answer(self, seconds: float) -> None:
        """Checks that each table's file system answers, and those of former places, unless it is an object store.

        Raises:
            TableSilent: see `Storage.require_answer`.
        """
        self.work.storage.require_answer(seconds)
        # Each request to a store costs money.
        former = self.work.storage.renames
        for table in self.beside:
            for uri in {table.storage().uri, *(place.storage.uri for place in (table.places() if former else ()))}:
                Storage(uri).require_answer(seconds)

    def fence(self, instant: str) -> None:
        """Withdraws an instant's orders and shuts it in each table, see `fencing.fence`."""
        for storage in self.storages(instant):
            fencing.fence(storage, instant)

    @contextmanager
    def swept(self, instant: str) -> Iterator[None]:
        """Wraps the rollback of an instant in each table, see `leftovers.swept`."""
        # A completion that was cut off after Hudi had deleted the markers: only the manifest still names the files.
        written = batch_files.written(self.work.storage, instant)
        with ExitStack() as stack:
            for key, storage in zip(("", *(table.key for table in self.beside)), self.storages(instant), strict=True):
                stack.enter_context(leftovers.swept(storage, instant, written.get(key, [])))
            yield

    def is_pending_beside(self, instant: str) -> bool:
        """Whether a table beside has the instant pending, or half rolled back."""
        return any(table.is_pending(instant) for table in self.beside)

    def unsettled(self, transaction: Transaction) -> str | None:
        """The path of a table beside in which the transaction's part is not completed; None where all are.

        Raises:
            TableMismatch: another client took that part away.
        """
        return next((table.path for table in self.beside if not table.is_settled(transaction)), None)

    def written(self, transaction: Transaction) -> list[Storage]:
        """The storages of the tables in which a recorded transaction has a part."""
        parts = (table.storage(transaction.instant) for table in self.beside if table.has_part(transaction))
        return [self.work.storage, *parts]

    def pending_beside(self, seen: Timelines | None = None) -> list[str]:
        """Pending commits of the tables beside, and instants that an unfinished rollback there names.

        Reads their timelines anew unless `seen` has them.
        """
        looks = [None] * len(self.beside) if seen is None else seen.beside
        return sorted({time for table, look in zip(self.beside, looks, strict=True) for time in table.pending(look)})

    def finish(self, lease: Lease, committed: Mapping[str, str]) -> list[str]:
        """Completes pending instants of tables beside whose batches the main table has; returns these instants.

        Args:
            lease: the pipeline's.
            committed: the main table's instants with their transactions.

        Raises:
            TableMismatch: a batch's manifest is gone.
        """
        return [instant for table in self.beside for instant in table.finish(lease, committed)]

    def require_no_newer(self, main: Timeline, seen: Timelines | None = None) -> None:
        """Refuses a table beside whose active timeline has more than the main table's; call it before each batch.

        Args:
            main: the main table's timeline.
            seen: what a look just saw, if one did.

        Raises:
            ForeignWrite: another client changed a table beside, and no person accepted it.
            TableMismatch: the main table was restored alone.
        """
        for number, table in enumerate(self.beside):
            table.require_no_newer(main, None if seen is None else seen.beside[number])

    def require_known(self) -> None:
        """Raises TimelineUnreadable where a table beside is not where it was made."""
        for table in self.beside:
            table.require_known()

    def require_whole(self, commits: Iterable[tuple[str, Mapping[str, str]]]) -> None:
        """Checks that each table beside has its parts of the main table's commits, see `TableBeside.require_whole`."""
        listed = list(commits)
        for table in self.beside:
            table.require_whole(listed)

    def require_no_more(self, main: Container[str]) -> None:
        """Refuses a table beside with commits that are not among the main table's instants (`main`)."""
        for table in self.beside:
            table.require_no_more(main)
