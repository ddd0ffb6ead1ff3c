"""Fault plans: rules by operation and place, chance or script, read from a file that may change at any time."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from airflow_provider_slshudi.config.load import AsWritten
from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.local.routes import OPERATIONS

log = logging.getLogger(__name__)

Kind = Literal[
    "pass",  # nothing; the place of a request that goes well in a script
    "error",  # `status` and `code` instead of carrying the request out
    "quota",  # the quota error of the shard, or of the project where the operation has no shard
    "expired_token",  # 401 Unauthorized
    "deleted_shard",  # 400 ShardNotExist
    "slow",  # carried out and answered after `seconds`
    "drop",  # the connection ends before the request is carried out
    "lose",  # carried out, then the connection ends without a byte of the answer
    "cut",  # carried out, then the connection ends in the middle of the answer's body
    "truncate",  # an answer that is whole for HTTP, without the last part of its body
    "corrupt",  # an answer whose body begins with bytes that no decoder takes
    "empty",  # a pull that answers with no log groups and the cursor that it was asked from
]


class Rule(BaseModel):
    """Some requests, and what happens to them. Empty conditions hold for every request."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    operations: list[str] = Field(default=[], description="one or several, such as pull_logs")
    project: str = ""
    logstore: str = ""
    shard: int | None = None
    do: Kind | list[Kind] = Field(description="a kind, or a script: one kind for each matching request, in order")
    probability: float = Field(default=1.0, ge=0, le=1)
    after: int = Field(default=0, ge=0, description="so many matching requests go well first")
    count: int | None = Field(default=None, ge=0, description="at most so many faults")
    status: int = Field(default=500, ge=400, le=599)
    code: str = "InternalServerError"
    seconds: float = Field(default=1.0, ge=0)

    @field_validator("operations", mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        names = [value] if isinstance(value, str) else value
        for name in names if isinstance(names, list) else ():
            if name not in OPERATIONS:
                raise ValueError(f"no operation {name!r}; there are {', '.join(OPERATIONS)}")
        return names

    def covers(self, operation: str, project: str, logstore: str, shard: int | None) -> bool:
        """Whether the rule holds for such a request.

        Args:
            operation: the API's name, such as PullLogs.
            project: its name.
            logstore: its name; empty: the request names none.
            shard: its id; None: the request names none.
        """
        pairs = ((self.project, project), (self.logstore, logstore))
        return (
            (not self.operations or operation in self.operations)
            and all(not want or want == name for want, name in pairs)
            and (self.shard is None or self.shard == shard)
            and (self.do != "empty" or operation == "pull_logs")
        )


class Plan(BaseModel):
    """The rules, and the seed of their chances; the first rule that fires counts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = 0
    rules: list[Rule] = []

    @classmethod
    def parse(cls, content: object, source: str) -> Plan:
        """The plan in `content`: a mapping, or YAML or JSON text. Raises ConfigError naming `source` and the field."""
        try:
            document = AsWritten(content).get_single_data() if isinstance(content, str) else content
            return cls.model_validate({} if document is None else document)
        except yaml.YAMLError as error:
            raise ConfigError(f"{source}: no YAML: {error}", source=source) from None
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            field = ".".join(map(str, problem["loc"]))
            message = f"{source}: {field or 'fault plan'}: {problem['msg']}, found {problem['input']!r}"
            raise ConfigError(message, source=source, field=field, value=problem["input"]) from None


class _Turns:
    """A rule and how often it has matched and fired."""

    def __init__(self, rule: Rule, seed: str) -> None:
        self.rule, self.matched, self.fired = rule, 0, 0
        self._random = random.Random(seed)  # noqa: S311 - repeatable chances

    def next(self) -> Kind:
        rule, self.matched = self.rule, self.matched + 1
        turn = self.matched - rule.after - 1
        if turn < 0 or (rule.count is not None and self.fired >= rule.count):
            return "pass"
        if self._random.random() >= rule.probability:
            return "pass"
        script = rule.do if isinstance(rule.do, list) else None
        kind: Kind = rule.do if isinstance(rule.do, str) else "pass"
        if script is not None and self.fired < len(script):
            kind = script[self.fired]
        self.fired += 1
        return kind


class Faults:
    """The plan in `path` as it stands at each request; `path.log` gets a line for each fault. No path: no faults.

    If the file changes, the plan starts anew; if it is no plan any more, a warning says so, and the old one stays.
    """

    def __init__(self, path: Path | None) -> None:
        self._path, self._version = path, (0, 0, 0)
        self._turns: list[_Turns] = []
        if path is not None:
            self._load(Plan.parse(path.read_text(), str(path)))
            self._version = _version(path)

    def next(self, operation: str, project: str, logstore: str, shard: int | None) -> tuple[Kind, Rule] | None:
        """The fault of this request, if there is one.

        Args:
            operation: the API's name, such as PullLogs.
            project: its name.
            logstore: its name; empty: the request names none.
            shard: its id; None: the request names none.
        """
        if self._path is None:
            return None
        self._refresh(self._path)
        for turns in self._turns:
            if turns.rule.covers(operation, project, logstore, shard):
                kind = turns.next()
                if kind != "pass":
                    return kind, turns.rule
        return None

    def record(self, kind: Kind, operation: str, place: str) -> None:
        """Note a fault that was made."""
        if self._path is not None:
            with log_of(self._path).open("a") as file:
                file.write(f"{operation} {kind} {place}\n")

    def _refresh(self, path: Path) -> None:
        version = _version(path)
        if version == self._version:
            return
        self._version = version
        try:
            self._load(Plan.parse(path.read_text(), str(path)))
        except (ConfigError, OSError, UnicodeDecodeError) as error:
            log.warning("%s; the plan before stays", error)

    def _load(self, plan: Plan) -> None:
        self._turns = [_Turns(rule, f"{plan.seed}-{place}") for place, rule in enumerate(plan.rules)]


def log_of(path: Path) -> Path:
    """The log of the faults of the plan in `path`: `operation kind project/logstore/shard`, one a line."""
    return path.with_name(f"{path.name}.log")


def _version(path: Path) -> tuple[int, int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0, 0
    return status.st_ino, status.st_mtime_ns, status.st_size
