"""The provider's own options: section [slshudi] of airflow.cfg, declared in get_provider_info."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from airflow.sdk.configuration import conf

from airflow_provider_slshudi.exceptions import ConfigError

if TYPE_CHECKING:
    from airflow_provider_slshudi.config.pipeline import Pipeline

SECTION = "slshudi"
LEDGER_CONN_ID = "slshudi_ledger"
_SUFFIXES = (".yaml", ".yml")


def ledger_conn_id() -> str:
    """The Airflow connection that leads to the ledger."""
    return str(conf.get(SECTION, "ledger_conn_id", fallback="") or LEDGER_CONN_ID)


def pipelines_folder() -> Path:
    """The folder of pipeline files that are given by name."""
    named = conf.get(SECTION, "pipelines_folder", fallback="")
    return Path(named).expanduser() if named else Path(str(conf.get("core", "dags_folder"))) / "pipelines"


def pipeline_names() -> list[str]:
    """The names of the pipelines folder's files, sorted."""
    folder = pipelines_folder()
    return sorted({path.stem for suffix in _SUFFIXES for path in folder.glob(f"*{suffix}")})


def pipeline_path(name_or_path: str) -> Path:
    """The file of a pipeline, by its name (`NAME.yaml` in the pipelines folder) or by a path to a .yaml or .yml file.

    Raises:
        ConfigError: there is no such file; the message lists the known names.
    """
    given, folder = Path(name_or_path).expanduser(), pipelines_folder()
    if given.suffix in _SUFFIXES:
        candidates = [given, folder / given]
    else:
        candidates = [folder / f"{name_or_path}{suffix}" for suffix in _SUFFIXES]
    for path in candidates:
        if path.is_file():
            return path
    raise ConfigError(
        f"no pipeline {name_or_path!r}: neither a file nor a name in the pipelines folder {folder}, which has "
        f"{', '.join(pipeline_names()) or 'none'}. Set [{SECTION}] pipelines_folder "
        "(AIRFLOW__SLSHUDI__PIPELINES_FOLDER) where they lie elsewhere",
        source=name_or_path,
    )


def pipeline(name_or_path: str) -> Pipeline:
    """The pipeline of a name or path.

    Raises:
        ConfigError: as `pipeline_path` and `load_pipeline`.
    """
    from airflow_provider_slshudi.config.load import load_pipeline

    return load_pipeline(pipeline_path(name_or_path))
