"""Which keys of logs, and which fields of their JSON values, a pipeline's columns keep."""

from __future__ import annotations

from collections.abc import Container, Iterable

from airflow_provider_slshudi.config.columns import Column
from airflow_provider_slshudi.types.datatypes import parse_type
from airflow_provider_slshudi.types.fields import has_fields, named_fields


def place_of(key: str, path: str) -> str:
    """How a field at `path` within the JSON of `key` is told: as a key of its own."""
    return f"{key} {path}"


class NamedKeys(Container[str]):
    """The keys that columns name, and the places within their JSON; all other keys, too, if a column keeps the rest."""

    def __init__(self, columns: Iterable[Column], has_rest: bool) -> None:
        self._has_rest = has_rest
        self._named: set[str] = set()
        self._structs: set[str] = set()
        for column in columns:
            key, path, type_ = column.source_key, column.path or "$", parse_type(column.type)
            self._named |= {key, place_of(key, path), *(place_of(key, at) for at in named_fields(type_, path))}
            if has_fields(type_):
                self._structs.add(key)

    def __contains__(self, key: object) -> bool:
        if key in self._named:
            return True
        of, is_field, _ = str(key).partition(" $")
        if is_field and of in self._named:
            # Other types keep all fields of a JSON text.
            return of not in self._structs
        return self._has_rest
