"""What one run needs: the tables, and the servers that its readers ask."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from airflow_provider_slshudi.config.pipeline import Catalog, Pipeline
from airflow_provider_slshudi.hudi.client import catalog
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from tests.databases import postgres
from tests.readers import store, trinoserver, twins
from tests.readers.mirrors import NAMESPACE, Mirrors
from tests.readers.readers import Reader, Services
from tests.readers.tables import HUDI, VERSIONS, ReaderTable, make
from tests.services import hive_metastore
from tests.sessions import start_spark


@dataclass(frozen=True)
class Tables:
    """The tables of one run.

    Attributes:
        tables: the package's tables in all of their forms.
        twins: tables of the same rows by Hudi's own writer.
        pipelines: the pipeline of each table, by the table's name.
    """

    tables: list[ReaderTable] = field(default_factory=list)
    twins: list[ReaderTable] = field(default_factory=list)
    pipelines: dict[str, Pipeline] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """The tables, the catalog of their mirrors, and the servers."""

    made: Tables
    mirrors: Mirrors
    services: Services


@contextmanager
def place(readers: Sequence[Reader], kinds: Sequence[str]) -> Iterator[Place]:
    """The tables, and the servers that these readers need, for as long as the block."""
    engines = {reader.engine for reader in readers}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slshudi-readers-")))
        url = stack.enter_context(postgres())
        with_hive = "trino" in engines and any(HUDI in reader.forms for reader in readers)
        metastore = stack.enter_context(hive_metastore()) if with_hive else ""
        services, mirrors = Services(url), Mirrors(url)
        made = _make(folder, kinds, mirrors, metastore)
        if "clickhouse" in engines:
            services = replace(services, store=stack.enter_context(store.copies(folder)))
        if "trino" in engines:
            address = stack.enter_context(trinoserver.running(folder, services.jdbc, metastore, made.tables))
            services = replace(services, trino=address)
        yield Place(made, mirrors, services)


def _make(folder: Path, kinds: Sequence[str], mirrors: Mirrors, metastore: str) -> Tables:
    """Makes the tables with a Spark of this process, which ends with the last of them."""
    started, made = time.monotonic(), Tables()
    session = start_spark()
    try:
        gateway = Gateway.of(session.sparkContext)
        for written, forms in make(gateway, folder, kinds, VERSIONS, mirrors):
            made.tables.extend(forms)
            made.twins.extend(twins.make(session, written, forms))
            made.pipelines[forms[0].name] = written.pipeline
            if metastore:
                named = Catalog(metastore=metastore, database=NAMESPACE, table=forms[0].name)
                catalog.sync(gateway, written.pipeline, named)
            print(f"{time.monotonic() - started:5.0f} s  made {forms[0].name}", flush=True)
    finally:
        session.stop()
    return made
