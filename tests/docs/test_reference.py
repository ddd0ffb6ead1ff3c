"""The reference is made from the code and names all of it; the pages that people wrote agree with it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

import airflow_provider_slshudi as package
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.get_provider_info import get_provider_info
from airflow_provider_slshudi.views.advice import ADVICE
from airflow_provider_slshudi.views.metrics import MEANING
from tests.machine import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import docs_reference


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return docs_reference.pages()


def fields(model: type[BaseModel] = Pipeline) -> Iterator[str]:
    """The names of all fields, of parts of the file, too."""
    for name, field in model.model_fields.items():
        yield name
        for kind in kinds(field.annotation):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from fields(kind)


def kinds(annotation: Any) -> Iterator[Any]:
    yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from kinds(argument)


def rows(text: str) -> set[str]:
    """The first cell of each row of tables."""
    return set(re.findall(r"^\| `([^`]+)`", text, re.MULTILINE))


def test_every_field_is_named_and_explained_in_the_manual(pages: dict[str, str]) -> None:
    assert {*fields()} == rows(pages["reference/fields.md"])
    manual = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")
    assert not [name for name in fields() if not re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`", manual)]


def test_the_manuals_defaults_are_the_codes(pages: dict[str, str]) -> None:
    of_code = re.findall(r"^\| `(\w+)` \| [^|]* \| `([^`]+)` \|", pages["reference/fields.md"], re.MULTILINE)
    manual = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", manual, re.MULTILINE)
    made = {("schedule", "5m"), ("timezone", "UTC"), ("version", "9"), ("keep", "{hours: 24}")}
    known = {item for item in told if item[0] in {*fields()}}
    assert len(known) > 20 and known - made <= set(of_code)


def test_every_name_for_dag_files_is_there(pages: dict[str, str]) -> None:
    named = set(re.findall(r"^### (\w+)$", pages["reference/dags.md"], re.MULTILINE))
    assert named == {*package.__all__, "PipelineOperator"} - {"__version__"}


def test_every_command_is_there_and_in_the_manual(pages: dict[str, str]) -> None:
    named = set(re.findall(r"^## `(slshudi .+)`$", pages["reference/commands.md"], re.MULTILINE))
    assert len(named) > 20 and {"slshudi local-sls", "slshudi demo", "slshudi table mend"} <= named
    manual = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    assert not [name for name in named if f"`{name}" not in manual]


def test_every_error_is_there_with_its_advice(pages: dict[str, str]) -> None:
    text = pages["reference/errors.md"]
    assert set(re.findall(r"^## (\w+)$", text, re.MULTILINE)) == set(ADVICE)
    assert not [name for name, advice in ADVICE.items() if advice.text not in text]


def test_every_metric_is_there_and_in_the_manual(pages: dict[str, str]) -> None:
    metrics = {f"slshudi_{name}" for name in MEANING}
    assert rows(pages["reference/metrics.md"]) == metrics
    assert rows((ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")) >= metrics


def test_every_option_and_connection_is_there(pages: dict[str, str]) -> None:
    info, text = get_provider_info(), pages["reference/settings.md"]
    assert {f"[slshudi] {name}" for name in info["config"]["slshudi"]["options"]} <= rows(text)
    assert not [item for item in info["connection-types"] if f"`{item['connection-type']}`" not in text]
