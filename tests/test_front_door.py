"""What DAG files import from the package itself, and what registries of providers are told."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from inspect import isclass
from pathlib import Path

import pytest
from airflow.sdk.bases.hook import BaseHook
from airflow.sdk.bases.operator import BaseOperator
from airflow.triggers.base import BaseTrigger
from jsonschema import validate  # type: ignore[import-untyped]

import airflow_provider_slshudi as front
from airflow_provider_slshudi.get_provider_info import get_provider_info

PACKAGE, ROOT = front.__name__, Path(front.__file__).parent
KINDS = {"operators": BaseOperator, "sensors": BaseOperator, "triggers": BaseTrigger, "hooks": BaseHook}
BASES = {"LedgerTrigger", "PipelineOperator", "PipelineSensor"}
"""Of the package's own classes; no DAG file names them."""


def classes(kind: str) -> Iterator[tuple[str, str]]:
    """Module and name of each public class of a kind that is defined in the kind's folder."""
    for path in sorted((ROOT / kind).glob("*.py")):
        module = import_module(f"{PACKAGE}.{kind}.{path.stem}")
        for name, found in vars(module).items():
            mine = isclass(found) and issubclass(found, KINDS[kind]) and found.__module__ == module.__name__
            if mine and not name.startswith("_") and name not in BASES:
                yield module.__name__, name


def test_every_class_and_factory_for_dag_files_is_imported_from_the_package() -> None:
    every = {name for kind in KINDS for _, name in classes(kind)}
    of_pipelines = [import_module(f"{PACKAGE}.dag.{name}") for name in ("factories", "operations")]
    factories = {
        name
        for module in of_pipelines
        for name, found in vars(module).items()
        if name.endswith("_dag") and name[0] != "_" and found.__module__ == module.__name__
    }
    others = {"__version__", "Pipeline", "micro_batch", "partitions_asset", "table_asset"}
    assert {*front.__all__} == others | every | factories
    assert {*front.__all__} <= {*dir(front)}
    for name in front.__all__:
        assert getattr(front, name).__name__ == name if name != "__version__" else front.__version__
    with pytest.raises(AttributeError, match="has no attribute SlsHudiOperator"):
        front.SlsHudiOperator  # noqa: B018


def test_type_checkers_see_the_same_names() -> None:
    [block] = [node for node in ast.parse(Path(front.__file__).read_text()).body if isinstance(node, ast.If)]
    seen = {alias.asname for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert {"__version__", *seen} == {*front.__all__}
    assert (ROOT / "py.typed").exists()


def test_the_package_itself_imports_nothing() -> None:
    code = f"import sys, {PACKAGE}; print(*sorted(name for name in sys.modules if name.startswith(('airflow', 'py'))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [PACKAGE]


def test_registries_of_providers_are_told_every_module() -> None:
    info = get_provider_info()
    spec = find_spec("airflow")
    assert spec is not None and spec.submodule_search_locations
    [schema] = [file for place in spec.submodule_search_locations for file in Path(place).glob("provider_info*.json")]
    validate(info, json.loads(schema.read_text()))
    for kind in KINDS:
        [told] = info[kind]
        assert told["python-modules"] == sorted({module for module, _ in classes(kind)})
