"""Loads a pipeline's file.

Every refusal is a `ConfigError` that names the file, the line, the field, the value found, and what is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml
from pydantic import ValidationError

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import ConfigError

_TAGS = ("tag:yaml.org,2002:null", "tag:yaml.org,2002:merge")


class AsWritten(yaml.SafeLoader):
    """Reads every unquoted value as text, but for `null`, `~` and nothing.

    YAML 1.1 makes false of `no`, 8 of `010`, 5400 of `1:30:00` and a date of `2026-01-31`, wherever they stand. The
    fields' own types make numbers and flags of the texts. This is not libyaml's loader, which ends the process where
    lists are nested deeply, and takes other texts for YAML.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012 - as PyYAML declares it
        letter: [(tag, form) for tag, form in resolvers if tag in _TAGS]
        for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


# What PyYAML's makers of values raise besides its own errors.
_UNREADABLE = (yaml.YAMLError, ValueError, LookupError, AttributeError, ArithmeticError)


def load_pipeline(path: str | Path) -> Pipeline:
    """The pipeline that the file at `path` describes.

    Raises:
        ConfigError: the file cannot be read, is no YAML, or describes no valid pipeline.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}", source=str(path)) from error
    return parse_pipeline(text, source=str(path))


def parse_pipeline(text: str, source: str) -> Pipeline:
    """The pipeline that a YAML text describes; `source` is named in errors.

    Raises:
        ConfigError: as `load_pipeline`.
    """
    try:
        loader = AsWritten(text)
        node = loader.get_single_node()
        # First: the data's making leaves the nodes of merged mappings with keys twice.
        repeated = [] if node is None else [*_repeated_keys(node)]
        data = None if node is None else loader.construct_document(node)
    except RecursionError:
        raise ConfigError(f"{source}: it refers to itself, or is nested too deeply", source=source) from None
    except _UNREADABLE as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or error
        raise ConfigError(f"{source}:{where} is no YAML: {problem}", source=source) from error
    if not isinstance(data, dict) or node is None:
        raise ConfigError(f"{source}: a pipeline is a mapping with name, source, table, columns", source=source)
    for field, line in repeated:
        raise ConfigError(f"{source} line {line}: {field} is given twice; keep one", source=source, field=field)
    try:
        return Pipeline.model_validate(data)
    except ValidationError as error:
        raise _refusal(error, node, source) from None


def place_of(path: Path, field: str, column: str = "") -> str:
    """Where a person edits a pipeline's file: `FILE line N: FIELD`, or the file alone where it lacks the field.

    Args:
        path: the file, which was loaded before.
        field: one at the top of the file.
        column: the entry of this name within it.
    """
    node = AsWritten(path.read_text(encoding="utf-8")).get_single_node()
    _, line, entries = ("", 1, None) if node is None else _locate(node, (field,))
    if entries is node:
        return f"{path}, which does not name `{field}`"
    for entry in entries.value if isinstance(entries, yaml.SequenceNode) else ():
        _, _, name = _locate(entry, ("name",))
        if name is not entry and name.value == column:
            line = entry.start_mark.line + 1
    return f"{path} line {line}: `{field}`{f', {column}' if column else ''}"


def _refusal(error: ValidationError, node: yaml.Node, source: str) -> ConfigError:
    problems = []
    for problem in error.errors(include_url=False):
        location, line, entry_node = _locate(node, problem["loc"])
        message = problem["msg"].removeprefix("Value error, ")
        entry = problem["input"]
        entry_text = "" if problem["type"] == "missing" or isinstance(entry, dict) else f": {entry!r}"
        if entry is None and isinstance(entry_node, yaml.ScalarNode):
            entry_text = f": {entry_node.value or 'nothing'}"
            message = f'YAML reads this as no value; if a text is meant, write it in quotes: "{entry_node.value}"'
        problems.append((location, entry, f"{source} line {line}: {location or 'pipeline'}{entry_text}: {message}"))
    field, value, _ = problems[0]
    return ConfigError("\n".join(text for *_, text in problems), source=source, field=field, value=value)


def _locate(node: yaml.Node, loc: tuple[int | str, ...]) -> tuple[str, int, yaml.Node]:
    """The dotted field, the line and the node of the deepest part of `loc` that the file has.

    A part that the file lacks is either a missing field, which is named, or a tag of a union, which is not.
    """
    line, field = node.start_mark.line + 1, ""
    for depth, part in enumerate(loc):
        if isinstance(node, yaml.MappingNode):
            # What was merged comes first, and what overrides it last.
            pair = next(((key, value) for key, value in reversed(node.value) if key.value == str(part)), None)
            if pair is None:
                if depth == len(loc) - 1:
                    field += f".{part}" if field else str(part)
                continue
            node, line = pair[1], pair[0].start_mark.line + 1
            field += f".{part}" if field else str(part)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
            field += f"[{part}]"
    return field, line, node


def _repeated_keys(node: yaml.Node, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Keys that stand twice, with their lines: YAML would silently keep the last one."""
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _repeated_keys(item, f"{prefix}[{index}]")
    if isinstance(node, yaml.MappingNode):
        keys: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            field = f"{prefix}.{key.value}" if prefix else str(key.value)
            if key.value in keys:
                yield field, key.start_mark.line + 1
            keys.add(key.value)
            yield from _repeated_keys(value, field)
