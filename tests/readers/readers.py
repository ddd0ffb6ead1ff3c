"""The readers: what each is, in which form it reads tables, and what its process needs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from airflow_provider_slshudi.config.pipeline import Catalog
from airflow_provider_slshudi.spark import pins
from airflow_provider_slshudi.spark.packages import environment
from tests.readers import fetch
from tests.readers.mirrors import CATALOG
from tests.readers.tables import DELTA, FORMS, HUDI, ICEBERG
from tests.sessions import java_options

_BUNDLE = "org.apache.hudi:hudi-spark3.5-bundle_2.12"
_ICEBERG_RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12"
_PRESTO_BUNDLE = "org.apache.hudi:hudi-presto-bundle:1.0.2"
_DELTA_SPARK = "io.delta:delta-spark_2.12:3.3.2"
_POSTGRES_DRIVER = "org.postgresql:postgresql:42.7.5"
_PYARROW = "pyarrow==26.0.1"
_PYICEBERG, _DELTALAKE = "pyiceberg[sql-postgres,pyarrow]==0.12.0", "deltalake==1.6.6"
_DUCKDB_EXTENSIONS = ("avro", "iceberg", "delta", "icu")


TRINO = f"trino-{fetch.TRINO}"


@dataclass(frozen=True)
class Services:
    """The servers that this run started: the URL of the Iceberg catalog's database, Trino's, and an S3 store's.

    Attributes:
        trino: the address; empty: this run has no Trino.
        store: the endpoint of the store that has copies of the Hudi tables; empty: this run has none.
    """

    database: str
    trino: str = ""
    store: Mapping[str, str] = field(default_factory=dict)

    @property
    def jdbc(self) -> str:
        """The database's URL as Java has it; the user is `postgres`."""
        return f"jdbc:postgresql://{self.database.rpartition('@')[2]}"


@dataclass(frozen=True)
class Reader:
    """A query engine in one version, with the libraries by which it reads one or more forms of tables.

    Attributes:
        key: the name on the command line.
        engine: the module in `engines`.
        settings: what the module is told.
        requirements: packages of its virtual environment; none: it runs in this one.
        variables: further variables of its process.
        engine_family: what several readers of one engine count as together; empty: each counts by itself.
    """

    key: str
    title: str
    forms: tuple[str, ...]
    engine: str
    settings: Callable[[Services], Mapping[str, Any]]
    requirements: tuple[str, ...] = ()
    variables: Callable[[], Mapping[str, str]] = dict
    engine_family: str = ""

    @property
    def family(self) -> str:
        """What counts as one reader."""
        return self.engine_family or self.key

    def python(self) -> Path:
        """The interpreter of its process; makes the environment where it is missing."""
        return fetch.python(self.requirements)


def _spark(
    coordinates: Sequence[str],
    conf: Callable[[Services], Mapping[str, str]],
    get: Callable[[str], list[Path]] = fetch.jars,
) -> Callable[[Services], Any]:
    def settings(services: Services) -> Mapping[str, Any]:
        given = {
            "spark.jars": ",".join(str(jar) for coordinate in coordinates for jar in get(coordinate)),
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "1",
            "spark.driver.extraJavaOptions": java_options(),
            **conf(services),
        }
        return {"conf": given}

    return settings


def _hudi_conf(_: Services) -> Mapping[str, str]:
    return {"spark.serializer": "org.apache.spark.serializer.KryoSerializer"}


def _iceberg_conf(services: Services) -> Mapping[str, str]:
    name = f"spark.sql.catalog.{CATALOG}"
    return {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        name: "org.apache.iceberg.spark.SparkCatalog",
        f"{name}.type": "jdbc",
        f"{name}.uri": services.jdbc,
        f"{name}.jdbc.user": "postgres",
        f"{name}.jdbc.schema-version": "V0",
        f"{name}.warehouse": os.devnull,
    }


def _delta_conf(_: Services) -> Mapping[str, str]:
    return {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # The log of such a table would make fifty tasks.
        "spark.databricks.delta.snapshotPartitions": "1",
    }


def _of_bundle(key: str, title: str, engine: str, settings: Callable[[Services], Any]) -> Reader:
    """A reader of Hudi's tables by the classes of a bundle, in the JVM of a Spark."""
    return Reader(key, title, (HUDI,), engine, settings, variables=environment)


def _spark_hudi(version: str) -> Reader:
    settings = _spark([f"{_BUNDLE}:{version}"], _hudi_conf)
    return _of_bundle(f"spark-hudi-{version}", f"Spark 3.5, Hudi {version}", "spark", settings)


def _hive(key: str, title: str, settings: Callable[[Services], Any]) -> tuple[Reader, ...]:
    """A bundle's input formats, with each type that `catalog.times` can give to times in the metastore."""

    def named(times: str) -> Reader:
        return _of_bundle(
            f"{key}-{times}",
            f"{title}, times as {times}",
            "hive",
            lambda services: settings(services) | {"times": times},
        )

    return tuple(named(times) for times in get_args(Catalog.model_fields["times"].annotation))


def _hive_of(version: str) -> tuple[Reader, ...]:
    return _hive(f"hive-{version}", f"Hive 2.3, Hudi {version}", _spark([f"{_BUNDLE}:{version}"], _hudi_conf))


def _spark_iceberg(version: str) -> Reader:
    return Reader(
        f"spark-iceberg-{version}",
        f"Spark 3.5, Iceberg {version}",
        (ICEBERG,),
        "spark",
        _spark([f"{_ICEBERG_RUNTIME}:{version}", _POSTGRES_DRIVER], _iceberg_conf),
        variables=environment,
        engine_family=f"spark-iceberg-{version}",
    )


def _named(engine: str, **more: Any) -> Callable[[Services], Mapping[str, Any]]:
    return lambda _: {"engine": engine, **more}


def _with_catalog(services: Services) -> Mapping[str, Any]:
    return {"catalog": {"type": "sql", "uri": services.database, "name": CATALOG}}


def _none(_: Services) -> Mapping[str, Any]:
    return {}


def _trino(catalog: str) -> Reader:
    return Reader(
        f"trino-{catalog}",
        f"Trino {fetch.TRINO}, {catalog.capitalize()} connector",
        (catalog,),
        "trino",
        lambda services: {"address": services.trino, "catalog": catalog},
        engine_family=TRINO,
    )


READERS: tuple[Reader, ...] = (
    _spark_hudi(pins.HUDI_PACKAGE.rpartition(":")[2]),
    _spark_hudi("1.0.2"),
    _spark_hudi("0.15.0"),
    *_hive_of(pins.HUDI_PACKAGE.rpartition(":")[2]),
    *_hive_of("1.0.2"),
    *_hive_of("0.15.0"),
    *_hive("presto-hudi-1.0.2", "Presto's bundle of Hudi 1.0.2", _spark([_PRESTO_BUNDLE], _hudi_conf, fetch.jar)),
    Reader("hudi-rs", "hudi-rs 0.5.0", (HUDI,), "hudi_rs", _none),
    Reader("hudi-rs-0.4", "hudi-rs 0.4.0", (HUDI,), "hudi_rs", _none, ("hudi==0.4.0",)),
    Reader("datafusion", "DataFusion 54, hudi-rs 0.5.0", (HUDI,), "datafusion", _none, ("hudi[datafusion]==0.5.0",)),
    Reader("daft", "Daft 0.7.26", FORMS, "daft", _none, ("daft==0.7.26", "sortedcontainers", _PYICEBERG, _DELTALAKE)),
    Reader(
        "ray",
        "Ray 2.60 (hudi-rs 0.4.0)",
        FORMS,
        "ray",
        _with_catalog,
        ("ray[data]==2.60.0", "hudi==0.4.0", _PYICEBERG, _DELTALAKE, "psycopg[binary]"),
    ),
    Reader(
        "clickhouse",
        "ClickHouse 26.9 (chdb 4.4.0)",
        FORMS,
        "clickhouse",
        lambda services: services.store,
        ("chdb==4.4.0", _PYARROW),
    ),
    Reader("pyiceberg", "pyiceberg 0.12.0", (ICEBERG,), "pythons", _named("pyiceberg")),
    Reader("deltalake", "deltalake 1.6.6", (DELTA,), "pythons", _named("deltalake")),
    Reader("polars", "Polars 2.1.0", (ICEBERG, DELTA), "pythons", _named("polars")),
    Reader(
        "duckdb", "DuckDB 2.0.0 over pyiceberg, deltalake", (ICEBERG, DELTA), "pythons", _named("duckdb", extensions=[])
    ),
    Reader(
        "duckdb-extensions",
        "DuckDB 1.5.5, its own extensions",
        (ICEBERG, DELTA),
        "pythons",
        _named("duckdb", extensions=_DUCKDB_EXTENSIONS),
        ("duckdb==1.5.5", *(f"duckdb-extension-{name}==1.5.5" for name in _DUCKDB_EXTENSIONS), _PYARROW),
    ),
    _spark_iceberg("1.9.2"),
    _spark_iceberg("1.10.1"),
    Reader(
        "spark-delta",
        "Spark 3.5, Delta 3.3.2",
        (DELTA,),
        "spark",
        _spark([_DELTA_SPARK], _delta_conf),
        variables=environment,
    ),
    _trino(ICEBERG),
    _trino(DELTA),
    _trino(HUDI),
)
BUILT_IN = ("spark-hudi-1.2.0", "hudi-rs", "pyiceberg", "deltalake", "duckdb", "polars")
"""The readers that need nothing beyond what `make setup` brings."""
