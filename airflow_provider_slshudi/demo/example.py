"""The example pipeline of dags/, with its table at another path."""

from __future__ import annotations

from pathlib import Path

from airflow_provider_slshudi.config.load import load_pipeline
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import RuntimeMissing

PIPELINE = "ad_events"
DAGS = Path(__file__).parents[2] / "dags"


def write_example(dags: Path, folder: Path, table: str, schedule: str | None = None) -> Pipeline:
    """Writes the example of `dags` into `folder` with the table at `table`, and with `schedule` if given.

    Args:
        dags: the folder with this project's examples.
        folder: the DAGs folder that gets a copy.
        table: the URI of the table's folder.
        schedule: replaces the one of the example's file.

    Raises:
        RuntimeMissing: `dags` has no example.
    """
    example = dags / "pipelines" / f"{PIPELINE}.yaml"
    if not example.is_file():
        raise RuntimeMissing(f"{example} is missing: run this from a checkout of the project, which has dags/")
    found = load_pipeline(example)
    text = example.read_text(encoding="utf-8").replace(found.table.path, table)
    # The example reads the local server, which has no quota to keep to.
    text = text.replace("source:\n", "source:\n  read_bytes_per_second: 1GB\n")
    if schedule is not None:
        text = text.replace(f"schedule: {found.schedule}", f'schedule: "{schedule}"')
    target = folder / example.name
    folder.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    return load_pipeline(target)
