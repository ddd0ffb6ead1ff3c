"""One run: makes the tables, starts the servers that readers need, and asks one reader after the other."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from airflow_provider_slshudi.config.pipeline import Catalog, Pipeline
from airflow_provider_slshudi.exceptions import RuntimeMissing
from airflow_provider_slshudi.hudi.client import catalog
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from tests.databases import postgres
from tests.readers import store, trinoserver
from tests.readers.ask import ask
from tests.readers.cells import NOT_RUN, RIGHT, Cell, compare
from tests.readers.faults import unexplained
from tests.readers.mirrors import NAMESPACE, Mirrors
from tests.readers.readers import Reader, Services
from tests.readers.tables import HUDI, VERSIONS, ReaderTable, make
from tests.services import hive_metastore
from tests.sessions import start_spark

_LONGEST_LINE = 240


@dataclass(frozen=True)
class Place:
    """What one run has made.

    Attributes:
        tables: the tables in all of their forms.
        services: the servers.
        mirrors: the mirrors' catalog.
        pipelines: the pipeline of each table, by the table's name.
    """

    tables: list[ReaderTable]
    services: Services
    mirrors: Mirrors
    pipelines: dict[str, Pipeline]


@contextmanager
def place(readers: Sequence[Reader], kinds: Sequence[str]) -> Iterator[Place]:
    """The tables, and the servers that these readers need, for as long as the block."""
    engines = {reader.engine for reader in readers}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slshudi-readers-")))
        url = stack.enter_context(postgres())
        with_hive = "trino" in engines and any(HUDI in reader.forms for reader in readers)
        metastore = stack.enter_context(hive_metastore()) if with_hive else ""
        services = Services(url)
        mirrors = Mirrors(url)
        tables, pipelines = _make(folder, kinds, mirrors, metastore)
        if "clickhouse" in engines:
            services = replace(services, store=stack.enter_context(store.copies(folder)))
        if "trino" in engines:
            address = stack.enter_context(trinoserver.running(folder, services.jdbc, metastore, tables))
            services = replace(services, trino=address)
        yield Place(tables, services, mirrors, pipelines)


def _make(
    folder: Path, kinds: Sequence[str], mirrors: Mirrors, metastore: str
) -> tuple[list[ReaderTable], dict[str, Pipeline]]:
    """Makes the tables with a Spark of this process, which ends with the last of them."""
    started = time.monotonic()
    session = start_spark()
    try:
        gateway = Gateway.of(session.sparkContext)
        tables: list[ReaderTable] = []
        pipelines: dict[str, Pipeline] = {}
        for written, forms in make(gateway, folder, kinds, VERSIONS, mirrors):
            tables += forms
            pipelines[forms[0].name] = written.pipeline
            if metastore:
                named = Catalog(metastore=metastore, database=NAMESPACE, table=forms[0].name)
                catalog.sync(gateway, written.pipeline, named)
            print(f"{time.monotonic() - started:5.0f} s  made {forms[0].name}", flush=True)
        return tables, pipelines
    finally:
        session.stop()


def asked(readers: Sequence[Reader], tables: Sequence[ReaderTable], services: Services) -> Iterator[Cell]:
    """The cells of all readers on the tables of their forms; prints each."""
    for reader in readers:
        mine = [table for table in tables if table.form in reader.forms]
        started = time.monotonic()
        try:
            for table, answer in ask(reader, mine, services):
                cell = compare(reader.key, table, answer)
                print(f"  {reader.key}, {table.form}, {table.name}: {told(cell)}", flush=True)
                yield cell
        except RuntimeMissing as error:
            print(f"  {reader.key}: {NOT_RUN}: {error}", flush=True)
        print(f"{time.monotonic() - started:5.0f} s  asked {reader.title}", flush=True)


def told(cell: Cell) -> str:
    """One line on a cell."""
    if cell.kind == RIGHT:
        return f"{RIGHT} ({cell.seconds} s)"
    new = unexplained(cell)
    words = [f"{'WRONG' if one in new else 'wrong'} {one}" for one in sorted(cell.differences, key=new.__contains__)]
    words += [f"refused {query}: {said}" for query, said in cell.refused.items()]
    more = f"; {len(words) - 1} more" if len(words) > 1 else ""
    return f"{words[-1 if new else 0][:_LONGEST_LINE]}{more}"
