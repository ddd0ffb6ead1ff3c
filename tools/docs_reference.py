"""The reference of the docs' site, in Markdown, made from the code: nothing of it is written a second time."""

from __future__ import annotations

import argparse
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import airflow_provider_slshudi as package
from airflow_provider_slshudi import cli, exceptions
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.get_provider_info import get_provider_info
from airflow_provider_slshudi.hooks.connections import ConnectionMissing
from airflow_provider_slshudi.operators.base import PipelineOperator
from airflow_provider_slshudi.views.advice import ADVICE
from airflow_provider_slshudi.views.metrics import MEANING

ROOT = Path(__file__).resolve().parent.parent
_MADE = "This page is made from the code."
_PARTS = {
    "Pipeline": "Top level",
    "Source": "`source`",
    "Logstore": "`source.also`, each",
    "Table": "`table`",
    "EventTimePartition": "`table.partition`, by event time",
    "Bounds": "`table.partition.bounds`",
    "FieldPartition": "`table.partition`, by a column",
    "Upsert": "`table.upsert`",
    "Column": "`columns`, each",
    "Check": "`checks`, each",
    "Route": "`routes`, each",
    "Mask": "`masks`",
    "Quarantine": "`quarantine`",
    "Batch": "`batch`",
    "Spark": "`spark`",
    "Catalog": "`catalog`",
    "Mirrors": "`mirror`",
    "IcebergMirror": "`mirror.iceberg`",
    "DeltaMirror": "`mirror.delta`",
    "Maintenance": "`maintenance`",
    "Keep": "`maintenance.keep`",
    "Clustering": "`maintenance.clustering`",
}
"""Where a model of the pipeline's file stands in it, in the order of the page."""
_SECTIONS = {"Pipeline": "top-level", "Route": "top-level", "Upsert": "upserts", "Quarantine": "logs-that-do-not-fit"}
"""The manual's section of a model; that of the field at the top is called as the field."""
_KINDS = {
    "DAGs": ("dag.factories", "dag.operations"),
    "Operators": ("operators.",),
    "Sensors and triggers": ("sensors.", "triggers."),
    "Hooks": ("hooks.",),
    "Pipelines": ("config.",),
}


def pages() -> dict[str, str]:
    """The text of each page, by its path within the docs' folder."""
    makers = (fields, dags, commands, errors, metrics, settings, examples)
    return {f"reference/{maker.__name__}.md": maker() for maker in makers}


def fields() -> str:
    """All fields of the pipeline's file: type, default, and what the model says of them."""
    schema = Pipeline.model_json_schema()
    models = {"Pipeline": schema, **schema["$defs"]}
    if missing := set(models) - set(_PARTS):
        raise ValueError(f"models without a place in the page of fields: {', '.join(sorted(missing))}")
    lines = ["# Fields of the pipeline file", _MADE, ""]
    for name, part in _PARTS.items():
        model = models[name]
        section = _SECTIONS.get(name) or re.findall(r"\w+", part)[0]
        lines += [f"## {part}", _prose(model["description"]), "", f"[Explained](../pipeline.md#{section}).", ""]
        if model.get("properties"):
            required = model.get("required", [])
            rows = [
                (f"`{field}`", _type(about), "required" if field in required else _default(about))
                for field, about in model["properties"].items()
            ]
            lines += _table(("field", "type", "default"), rows)
    return "\n".join(lines)


def dags() -> str:
    """All that a DAG file can import: signatures and docstrings."""
    lines = ["# Names for DAG files", f"{_MADE} Everything here is imported from `airflow_provider_slshudi`.", ""]
    objects = {name: getattr(package, name) for name in package.__all__ if name != "__version__"}
    objects |= {"PipelineOperator": PipelineOperator}  # whose arguments the others share
    for kind, rooms in _KINDS.items():
        prefixes = tuple(f"{package.__name__}.{room}" for room in rooms)
        names = {name: value for name, value in objects.items() if value.__module__.startswith(prefixes)}
        lines += [f"## {kind}", ""]
        for name, value in sorted(names.items()):
            lines += [f"### {name}", "```python", f"{name}{_signature(objects.pop(name))}", "```"]
            lines += [*_sections(inspect.getdoc(value) or ""), ""]
    if objects:
        raise ValueError(f"names without a place in the page of DAG files: {', '.join(objects)}")
    return "\n".join(lines)


@cache
def commands() -> str:
    """The help of each command, as `--help` prints it."""
    os.environ["COLUMNS"] = "100"
    lines = ["# Commands", f"{_MADE} [The table of commands](../operating.md#slshudi) says what each is for.", ""]
    for name, parser in _leaves(cli._parser()):
        forwarded = name.partition(" ")[2] in cli._FORWARDED
        lines += [f"## `{name}`", "", "```text", _help(name) if forwarded else parser.format_help().strip(), "```", ""]
    return "\n".join(lines)


def _help(name: str) -> str:
    command = [sys.executable, "-m", "airflow_provider_slshudi.cli", *name.split()[1:], "--help"]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout.strip()


def _leaves(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield parser.prog, parser
    for group in groups:
        for below in group.choices.values():
            yield from _leaves(below)


def errors() -> str:
    """All errors that users meet, what each means, and what the pages advise."""
    about = "[The table of errors](../operating.md#errors-and-what-they-ask-for) says more of each."
    lines = ["# Errors", f"{_MADE} {about}", ""]
    for name, advice in sorted(ADVICE.items()):
        error = getattr(exceptions, name, ConnectionMissing)
        passes = issubclass(error, exceptions.TransientError)
        acts = ", ".join(f"`{act.value}`" for act in advice.acts)
        lines += [f"## {name}", _prose(inspect.getdoc(error) or ""), "", f"**What to do:** {advice.text}", ""]
        lines += ["Trying again later may succeed." if passes else "A retry changes nothing until that is done.", ""]
        if acts:
            lines += [f"Buttons of the [page](../pages.md#buttons): {acts}.", ""]
    return "\n".join(lines)


def metrics() -> str:
    """All metrics and what each means."""
    rows = [(f"`slshudi_{name}`", meaning) for name, meaning in MEANING.items()]
    about = "All are gauges with the label `pipeline`. [Monitoring](../monitoring.md) says how to get them."
    return "\n".join(["# Metrics", f"{_MADE} {about}", "", *_table(("metric", "means"), rows)])


def settings() -> str:
    """The provider's options and the fields of its connections' forms."""
    info = get_provider_info()
    about = "[Operating](../operating.md#settings) has the environment's variables and all fields of connections."
    lines = ["# Settings and connections", f"{_MADE} {about}", ""]
    for section, part in info["config"].items():
        rows = [
            (
                f"`[{section}] {name}`",
                f"`AIRFLOW__{section.upper()}__{name.upper()}`",
                f"`{option['default']}`" if option["default"] else "",
                option["description"],
            )
            for name, option in part["options"].items()
        ]
        lines += ["## Options", "", *_table(("option", "variable", "default", "means"), rows)]
    for connection in info["connection-types"]:
        rows = [
            (f"`{name}`", about["label"], _type(about["schema"]), about.get("description", ""))
            for name, about in connection["conn-fields"].items()
        ]
        lines += [f"## Connection `{connection['connection-type']}`", f"{connection['hook-name']}. Its extras:", ""]
        lines += _table(("extra", "label", "type", "means"), rows)
    return "\n".join(lines)


def examples() -> str:
    """The repository's files to which the docs lead."""
    lines = ["# Examples", "DAG files, pipeline files and rules of the repository.", ""]
    for path in example_files():
        language = {"py": "python", "yaml": "yaml", "json": "json"}.get(path.suffix[1:], "text")
        text = path.read_text(encoding="utf-8").strip()
        lines += [f"## {path.relative_to(ROOT)}", f"```{language}", text, "```", ""]
    return "\n".join(lines)


def example_files() -> list[Path]:
    """The files that the page of examples shows."""
    return [*sorted((ROOT / "dags").rglob("*.[py]*[yl]")), *sorted((ROOT / "monitoring").iterdir()), ROOT / "LICENSE"]


def _prose(text: str) -> str:
    """A docstring as Markdown: `<` outside of code begins no tag of HTML."""
    parts = text.split("`")
    return "`".join(part if place % 2 else part.replace("<", "&lt;") for place, part in enumerate(parts))


class _Word(str):
    """A text that a signature shows without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _signature(value: Any) -> str:
    """How a function or a class is called; a model's fields have a page of their own."""
    if inspect.isclass(value) and issubclass(value, BaseModel):
        return "(**fields)"
    signature, parameters = inspect.signature(value), []
    for parameter in signature.parameters.values():
        known = inspect.isclass(parameter.default) and parameter.default is not parameter.empty
        default = _Word(parameter.default.__name__) if known else parameter.default
        parameters.append(parameter.replace(annotation=_Word(parameter.annotation), default=default))
    returned = signature.empty if inspect.isclass(value) else _Word(signature.return_annotation)
    line = str(signature.replace(parameters=parameters, return_annotation=returned))
    if len(line) < 70:
        return line
    return re.sub(r"\)( -> .*)?$", r"\n)\1", re.sub(r"(?<=[(,]) ?(?=[\w*]+[:,])", "\n    ", line))


def _sections(docstring: str) -> Iterator[str]:
    """A docstring as Markdown, its sections (Args, Raises, ...) as lists."""
    for line in _prose(docstring).splitlines():
        if re.fullmatch(r"[A-Z][a-z]+:", line):
            yield f"\n**{line}**\n"
        elif item := re.match(r" {4}(\w+): (.*)", line):
            yield f"- `{item[1]}`: {item[2]}"
        else:
            yield line.strip()


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines: list[Sequence[str]] = [heads, tuple("---" for _ in heads), *rows]
    return [*(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines), ""]


def _type(about: Mapping[str, Any]) -> str:
    """A field's type in words, of its JSON schema."""
    if "anyOf" in about or "oneOf" in about:
        kinds = (_type(kind) for kind in about.get("anyOf", about.get("oneOf")))
        return " or ".join(kind for kind in kinds if kind != "null")
    if "$ref" in about:
        return _PARTS[about["$ref"].rpartition("/")[2]]
    if "const" in about or "enum" in about:
        return ", ".join(f"`{value}`" for value in about.get("enum", [about.get("const")]))
    if isinstance(about.get("type"), list):
        return " or ".join(kind for kind in about["type"] if kind != "null")
    if about.get("type") == "array":
        return f"list of {_type(about['items'])}"
    if about.get("type") == "object":
        return f"names and {_type(about['additionalProperties'])}s"
    bounds = {"gt": "more than", "ge": "at least", "le": "at most"}
    limits = {"exclusiveMinimum": "gt", "minimum": "ge", "maximum": "le"}
    said = [f"{bounds[limits.get(key, key)]} {value}" for key, value in about.items() if limits.get(key, key) in bounds]
    return ", ".join([str(about["type"]), *said])


def _default(about: Mapping[str, Any]) -> str:
    value = about.get("default")
    if value is None or isinstance(value, dict):
        return "" if value is None else "as below"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, (int, float)):
        sizes = {"GiB": 2**30, "MiB": 2**20, "MB": 10**6}
        unit = next((unit for unit, size in sizes.items() if value and not value % size), "")
        return f"`{value / sizes.get(unit, 1):g}{unit}`"
    return f"`{value}`" if value else ""
