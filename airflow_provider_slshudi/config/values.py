"""Values of a pipeline file: sizes, times, paths, names; each error says what is expected."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from functools import cache
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from airflow_provider_slshudi.config.datatypes import parse_type
from airflow_provider_slshudi.config.timepattern import FORMATS, parse_pattern

_STEP = re.compile(r"\.([^.\[\]'*\s]+)|\[([0-9]{1,9})\]|\['([^']+)'\]")


@cache
def parse_path(text: str) -> tuple[str | int, ...]:
    """The steps from a JSON text's root: a name within an object, a number (from 0) within an array.

    Raises:
        ValueError: the text is no path; the message says where it goes wrong.
    """
    if not text.startswith("$"):
        raise ValueError("a path begins with $, the whole value: $.user.id, $.items[0].price, $['odd name']")
    steps: list[str | int] = []
    position = 1
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None:
            raise ValueError(
                f"at {text[position:]!r}: a step is .name, [0] or ['name']; a path names one place, so no *"
            )
        name, index, quoted = match.groups()
        steps.append(int(index) if index is not None else name or quoted)
        position = match.end()
    if not steps:
        raise ValueError("a path has at least one step after $: .name, [0] or ['name']")
    return tuple(steps)


_SIZE_UNITS = {"": 1, "B": 1} | {
    f"{prefix}{suffix}": base ** (power + 1)
    for power, prefix in enumerate("KMGT")
    for suffix, base in (("B", 1000), ("iB", 1024))
}
_PAUSE = r"[1-9]\d*[smhd]"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SPARKS = ("_tmp_metadata_row_index",)


def parse_size(value: object) -> int:
    """Bytes of `512MiB`, `2GB` or a plain number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?i?B|)\s*", str(value))
    if match is None or match[2] not in _SIZE_UNITS:
        raise ValueError("expected bytes, as a number or like 512MiB, 2GB")
    return int(float(match[1]) * _SIZE_UNITS[match[2]])


def parse_schedule(value: object) -> str:
    """A pause between runs (`30s`, `5m`, `1h`), `@continuous`, another Airflow preset, or a cron expression."""
    text = str(value).strip()
    if not (re.fullmatch(_PAUSE, text) or text.startswith("@") or len(text.split()) == 5):
        raise ValueError("expected a pause like 30s, 5m, 1h, or @continuous, or a cron expression of five fields")
    return text


def every(schedule: str) -> timedelta | str:
    """A schedule as Airflow takes it."""
    return pause(schedule) if re.fullmatch(_PAUSE, schedule) else schedule


def pause(text: str) -> timedelta:
    """The time that `30s`, `5m`, `1h`, `7d` stand for."""
    return timedelta(seconds=int(text[:-1]) * _SECONDS[text[-1]])


def _check_pause(value: str) -> str:
    if not re.fullmatch(_PAUSE, value):
        raise ValueError("expected a time like 30s, 15m, 1h, 7d")
    return value


def _check_metastore(value: str) -> str:
    if not re.fullmatch(r"thrift://[^\s,/:]+:\d+(,thrift://[^\s,/:]+:\d+)*", value):
        raise ValueError("expected thrift://host:port, or several with commas between")
    return value


def _check_path(value: str) -> str:
    """The path as it stands, as Hadoop takes it: `#`, `%`, spaces and letters of any script are parts of names."""
    if not re.fullmatch(r"(file:(//)?(?=/[^/])|(s3a?|oss|hdfs)://[^/]+(?=//?[^/]))/.+", value, re.DOTALL):
        raise ValueError(
            "expected a URI like file:///lake/events, s3a://bucket/lake/events, oss://bucket/lake/events or "
            "hdfs://nameservice/lake/events"
        )
    path = value.rstrip("/")
    scheme, place = scheme_and_place(path)
    if scheme == "oss" and "." in (bucket := place.partition("/")[0]):
        raise ValueError(
            f"expected a bucket's name alone, not {bucket}: the variable AWS_ENDPOINT_URL has the endpoint, like "
            "https://s3.oss-cn-hangzhou-internal.aliyuncs.com"
        )
    if scheme != "file" and "@" in (host := place.partition("/")[0]):
        raise ValueError(
            f"expected no user or key before {host.rpartition('@')[2]}: every message about the table would show it, "
            "and the machine's environment has them"
        )
    if scheme == "hdfs" and ":" in place.partition("/")[2]:
        raise ValueError("expected no `:` in it: HDFS has no such names")
    if odd := sorted({letter for letter in path if letter in "*?[]{}\\" or not letter.isprintable()}):
        raise ValueError(
            f"expected none of {' '.join(map(repr, odd))} in it: Spark takes * ? [ ] {{ }} \\ for a pattern of paths, "
            "and control characters are no part of a name"
        )
    if {"", ".", ".."} & set(scheme_and_place(path)[1].lstrip("/").split("/")):
        raise ValueError("expected no empty folder's name in it, nor `.` or `..`: one table would have several paths")
    return path


def scheme_and_place(path: str) -> tuple[str, str]:
    """A table's path in two: `file` and `/lake/events` (file:/lake is file:///lake), `s3a` and `bucket/lake/events`."""
    scheme, _, rest = path.partition(":")
    return scheme, rest.removeprefix("//")


def _check_zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError("expected an IANA time zone like UTC or Asia/Shanghai") from error
    return value


def _check_column(value: str) -> str:
    if not re.fullmatch(r"[a-z_][a-z0-9_]*", value) or value.startswith("_hoodie_"):
        raise ValueError("expected lower-case letters, digits and _, not starting with a digit or _hoodie_")
    if value in _SPARKS:
        raise ValueError(f"{value} is Spark's own: it stops at a table with such a column")
    return value


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _check_format(value: str) -> str:
    if value not in FORMATS:
        try:
            parse_pattern(value)
        except ValueError as error:
            raise ValueError(f"expected {', '.join(FORMATS)} or a pattern: {error}") from error
    return value


def _check_json_path(value: str) -> str:
    parse_path(value)
    return value


_PLACE = re.compile(
    r"spark\.kubernetes\.(container\.image\.pullSecrets|(driver|executor)\.(secretKeyRef|secrets)\..+"
    r"|kerberos\.tokenSecret\.(name|itemKey))|.*(\.f|F)ile"
)


def refuse_secret(key: str) -> None:
    """Raises ValueError if the name of a setting sounds like a secret, and not like the place of one.

    Places are files, and secrets of Kubernetes by their names (Spark's page "Running on Kubernetes").
    """
    if re.search(r"secret|password|token|access\.?key", key, re.IGNORECASE) and not _PLACE.fullmatch(key):
        raise ValueError(f"{key} looks like a secret, which does not belong into a file: use a connection")


def listed(names: Iterable[str]) -> str:
    """The names for a message, sorted."""
    return ", ".join(sorted(names)) or "there is none"


Size = Annotated[int, BeforeValidator(parse_size), Field(gt=0)]
Schedule = Annotated[str, BeforeValidator(parse_schedule)]
Pause = Annotated[str, AfterValidator(_check_pause)]
Rule = Literal["nullify", "fail", "quarantine"]
"""The rule for a log that does not fit its table."""
ColumnName = Annotated[str, AfterValidator(_check_column)]
Uri = Annotated[str, AfterValidator(_check_path)]
Zone = Annotated[str, AfterValidator(_check_zone)]
Metastore = Annotated[str, AfterValidator(_check_metastore)]
TimeFormat = Annotated[str, AfterValidator(_check_format)]
JsonPath = Annotated[str, AfterValidator(_check_json_path)]
Names = Annotated[list[str], BeforeValidator(_as_list)]
ColumnType = Annotated[str, AfterValidator(lambda text: str(parse_type(text)))]


class Model(BaseModel):
    """A part of a pipeline: takes known fields only, and never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def is_archive(text: str) -> bool:
    """Whether Spark takes the text for one archive's place: it reads it as an address, in a list."""
    return re.fullmatch(r"(/|[a-z][a-z0-9+.-]*:/)[^\s#,?%]*\.(tar\.gz|tgz)", text) is not None
