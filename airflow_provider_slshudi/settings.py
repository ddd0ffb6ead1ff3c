"""The provider's own options: section [slshudi] of airflow.cfg, declared in get_provider_info."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import conf

from airflow_provider_slshudi.dagfile import DagFile
from airflow_provider_slshudi.exceptions import ConfigError

if TYPE_CHECKING:
    from airflow_provider_slshudi.config.pipeline import Pipeline

SECTION = "slshudi"
CONNECTIONS = ("sls_conn_id", "spark_conn_id", "ledger_conn_id", "storage_conn_id")
"""The arguments of operators and factories that name Airflow connections."""
LEDGER_CONN_ID = "slshudi_ledger"
AIRFLOW_NAME = "slshudi_airflow"
"""The Airflow variable with the name by which an Airflow recognises its own runs."""
_SUFFIXES = (".yaml", ".yml")
_FOLDER = "pipelines"


@dataclass(frozen=True)
class Connections:
    """Ids of Airflow connections that are used instead of those that files and options name; None: not instead.

    Attributes:
        sls_conn_id: the log service's, instead of `source.connection` of the pipeline.
        spark_conn_id: Spark's, instead of `spark.connection` of the pipeline.
        ledger_conn_id: the ledger's, instead of the option `ledger_conn_id`.
        storage_conn_id: the object store's, of type `aws`, instead of the environment's AWS_* variables.
    """

    sls_conn_id: str | None = None
    spark_conn_id: str | None = None
    ledger_conn_id: str | None = None
    storage_conn_id: str | None = None

    @property
    def ledger(self) -> str:
        """The ledger's connection."""
        return self.ledger_conn_id or ledger_conn_id()

    def of(self, pipeline: Pipeline) -> Pipeline:
        """The pipeline with these connections."""
        changes: dict[str, Any] = {}
        if self.sls_conn_id:
            changes["source"] = pipeline.source.by_connection(self.sls_conn_id)
        if self.spark_conn_id:
            changes["spark"] = pipeline.spark.model_copy(update={"connection": self.spark_conn_id})
        return pipeline.model_copy(update=changes) if changes else pipeline


def ledger_conn_id() -> str:
    """The Airflow connection that leads to the ledger."""
    return str(conf.get(SECTION, "ledger_conn_id", fallback="") or LEDGER_CONN_ID)


def ledger_conn_ids() -> list[str]:
    """The connections of the ledgers that pages, `slshudi status` and `slshudi metrics` show."""
    more = str(conf.get(SECTION, "more_ledgers", fallback="") or "").split(",")
    return list(dict.fromkeys([ledger_conn_id(), *(name.strip() for name in more if name.strip())]))


def watched_by() -> str:
    """What watches all pipelines outside of Airflow, as a person named it; empty where nothing does."""
    return str(conf.get(SECTION, "watched_by", fallback="") or "").strip()


def pipelines_folder() -> Path | None:
    """The one folder of all pipeline files that are given by name; None unless it is set."""
    named = conf.get(SECTION, "pipelines_folder", fallback="")
    return Path(named).expanduser() if named else None


def pipeline_names() -> list[str]:
    """The names of all pipeline files of this machine, sorted: of the pipelines folder, or of all bundles."""
    folder = pipelines_folder()
    places = [_Place(folder)] if folder else _bundles()
    return sorted({name for place in places if isinstance(place, _Place) for name in place.names()})


def pipeline_path(name_or_path: str, dag_file: DagFile | None = None) -> Path:
    """The file of a pipeline, by its name or by a path to a .yaml or .yml file (docs/decisions/0030).

    If the pipelines folder is set, a name is looked for there and nowhere else. If not, it is looked for beside the DAG
    file, then in each folder `pipelines` further up in its bundle; without a DAG file in all bundles that this machine
    has. A path begins at the DAG file's folder, or at the working directory, or at the pipelines folder.

    Raises:
        ConfigError: there is no such file, or several are equally near; the message says where it was looked for.
    """
    names, levels = _where(name_or_path, dag_file)
    for level in levels:
        looked = (place for place in level if isinstance(place, _Place))
        paths = {path.resolve(): path for place in looked for path in place.files(names)}
        if len(paths) > 1:
            raise ConfigError(
                f"pipeline {name_or_path!r} has several files, and none is nearer than the others: "
                f"{', '.join(map(str, paths.values()))}. Keep one, or give the path of the right one",
                source=name_or_path,
            )
        if paths:
            return next(iter(paths.values()))
    places = dict.fromkeys(str(place) for level in levels for place in level)
    raise ConfigError(
        f"no pipeline {name_or_path!r}: {' or '.join(names)} was looked for in {'; '.join(places)}. Put the file "
        f"there, or give its path; [{SECTION}] pipelines_folder (AIRFLOW__SLSHUDI__PIPELINES_FOLDER) names one folder "
        "for all",
        source=name_or_path,
    )


def place_of_new(name: str, folder: Path) -> Path:
    """Where the file of a new pipeline belongs whose DAG file lies in `folder`: in the pipelines folder, if that is
    set, or in `pipelines` beside the DAG file.

    Raises:
        ConfigError: a file of this name is there, or elsewhere in what this machine has of Airflow's bundles.
    """
    names, (nearest, *_) = _where(name, DagFile(folder / f"{name}.py", folder))
    everywhere = [*nearest, *([] if pipelines_folder() else _bundles())]
    for place in everywhere:
        for path in place.files(names) if isinstance(place, _Place) else []:
            raise ConfigError(
                f"there is a pipeline {name!r} already, in {path}: choose another name, or move that file away",
                source=name,
                value=str(path),
            )
    return (pipelines_folder() or folder / _FOLDER) / names[0]


def dag_folders() -> list[Path]:
    """The folders of this machine where Airflow looks for DAG files; without those that it fetches from elsewhere."""
    from airflow.dag_processing.bundles.local import LocalDagBundle
    from airflow.dag_processing.bundles.manager import DagBundlesManager

    manager = DagBundlesManager()  # type: ignore[no-untyped-call]  # Airflow's
    folders = []
    # The manager also has bundles of examples, which lie within Airflow's packages.
    for configured in conf.getjson("dag_processor", "dag_bundle_config_list") or []:
        with suppress(Exception):  # anything that the bundle's class raises
            bundle = manager.get_bundle(str(configured["name"]))
            if isinstance(bundle, LocalDagBundle):
                folders.append(bundle.path)
    return folders


def pipeline(
    described: str | Pipeline, dag_file: DagFile | None = None, connections: Connections | None = None
) -> Pipeline:
    """The pipeline of a name or path, or the one that was made in Python, with these connections.

    Raises:
        ConfigError: as `pipeline_path` and `load_pipeline`.
    """
    from airflow_provider_slshudi.config.load import load_pipeline

    loaded = load_pipeline(pipeline_path(described, dag_file)) if isinstance(described, str) else described
    return loaded if connections is None else connections.of(loaded)


def fleet(pipelines: Sequence[str], dag_file: DagFile | None) -> list[str]:
    """The pipelines that a fleet names; of a folder, given as one text, the paths of all files in it.

    Raises:
        ConfigError: there is no such folder, or no pipeline, or one is named twice.
    """
    names = [*pipelines]
    if not all(isinstance(name, str) for name in names):
        raise ConfigError(
            "a fleet's task finds its pipeline by name: give names or files, not `Pipeline` objects; a pipeline that "
            "is made in Python has a tail of its own (tail_dag)",
            source="fleet_dag",
            field="pipelines",
        )
    if isinstance(pipelines, str):
        # By paths as they are given: another machine may have the DAG file elsewhere.
        named_folder = Path(pipelines).expanduser()
        folder = (dag_file.path.parent if dag_file else Path.cwd()) / named_folder
        file_names = (path.name for path in folder.glob("[!.]*") if path.suffix in _SUFFIXES)
        names = [str(named_folder / name) for name in sorted(file_names)]
        if not names:
            raise ConfigError(f"{folder} is no folder with pipeline files", source=str(folder))
    if not names:
        raise ConfigError("a fleet needs at least one pipeline", source="fleet_dag", field="pipelines")
    stems = [*map(stem, names)]
    if twice := {stem for stem in stems if stems.count(stem) > 1}:
        named = ", ".join(sorted(twice))
        raise ConfigError(f"the fleet names these pipelines twice: {named}", source="fleet_dag", field="pipelines")
    return names


def stem(described: str | Pipeline) -> str:
    """What a pipeline's file is called, which is its name unless the file says otherwise."""
    if not isinstance(described, str):
        return described.name
    return Path(described).stem if described.endswith(_SUFFIXES) else described


def _where(name_or_path: str, dag_file: DagFile | None) -> tuple[list[str], Sequence[Sequence[_Place | str]]]:
    """The names that the file may have, and where it may be, nearest places first; a text is an unknown place."""
    path, folder = Path(name_or_path).expanduser(), pipelines_folder()
    if path.suffix in _SUFFIXES:
        starts = [dag_file.path.parent if dag_file else Path.cwd(), *([folder] if folder else [])]
        return [path.name], [[_Place((start / path).parent)] for start in starts]
    names = [f"{name_or_path}{suffix}" for suffix in _SUFFIXES]
    if folder:
        return names, [[_Place(folder)]]
    return names, _beside(dag_file) if dag_file else [_bundles()]


@dataclass(frozen=True)
class _Place:
    """A folder where files are looked for, `deep` also below it; as text with the names that it has."""

    folder: Path
    deep: bool = False

    def files(self, names: list[str]) -> list[Path]:
        if self.deep:
            candidates = [path for path in self._yaml("**/") if path.name in names]
        else:
            candidates = [self.folder / name for name in names]
        return [path for path in candidates if path.is_file()]

    def __str__(self) -> str:
        if not self.folder.is_dir():
            return f"{self.folder}, which is not there"
        return f"{self.folder}{' and below' if self.deep else ''}, which has {', '.join(self.names()) or 'none'}"

    def names(self) -> list[str]:
        return sorted({path.stem for path in self._yaml(f"**/{_FOLDER}/" if self.deep else "")})

    def _yaml(self, below: str) -> Iterator[Path]:
        return (path for suffix in _SUFFIXES for path in self.folder.glob(f"{below}*{suffix}"))


def _beside(dag_file: DagFile) -> list[list[_Place]]:
    here = dag_file.path.parent
    above = [[_Place(folder / _FOLDER)] for folder in here.parents if folder.is_relative_to(dag_file.root)]
    return [[_Place(here / _FOLDER), _Place(here)], *above]


def _bundles() -> list[_Place | str]:
    """All bundles of Airflow's configuration, each in the newest version that this machine has; a text if unknown."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager

    manager = DagBundlesManager()  # type: ignore[no-untyped-call]  # Airflow's
    places: list[_Place | str] = []
    for name in manager.get_all_bundle_names():
        try:
            places.append(_Place(manager.get_bundle(name).path, deep=True))
        except Exception as error:  # anything that the bundle's class raises, without its connection for example
            places.append(f"bundle {name}, which cannot be made here ({error})")
    return places
