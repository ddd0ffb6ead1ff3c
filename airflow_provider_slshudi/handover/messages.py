"""What a task and the driver of its job say to one another: a line of JSON each, however the driver was started.

The task gives `Job`. The driver tells `Line`, `Page` and `Spent`, and at its end `Failed` or `Done`. A resident
process is asked for its readiness first (`Ask`, `Accepted`, `Refused`, `Begun`). In cluster mode the driver's messages
travel in a `Report`, and what the task says in its `Reply`.
"""

from __future__ import annotations

import json
from dataclasses import field
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from airflow_provider_slshudi.handover.job_order import JobOrder, Verb

_STRICT = ConfigDict(extra="forbid")
VERSION = 1
"""Of all messages; a task and a driver of different versions do not work together."""
FILE = "slshudi-driver.json"
"""The file in the folder of a driver in cluster mode that says where the task is asked. It holds a token."""
BEAT_SECONDS = 2.0
"""How often a driver in cluster mode reports."""
LOST_SECONDS = 60.0
"""A driver that does not reach its task for so long ends itself; one that is not heard of for so long is lost."""
GONE_SECONDS = 10.0
"""A driver that hears for so long that its task does not listen any more, or that another process does, ends itself."""
LONGEST = 256 << 10
"""Bytes of the longest report."""


@dataclass(frozen=True, config=_STRICT)
class Job:
    """What a driver has to do.

    Attributes:
        verb: what it does.
        order: what it works on.
        secrets: the log service's connection by the names of `SlsConnection.to_env`, which are in no environment; empty
            where the verb needs none, or `keys` stand for it.
        keys: where tasks are told the log service's credentials, JSON of a Place; in cluster mode alone.
    """

    verb: Verb
    order: JobOrder
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    keys: str = field(default="", repr=False)
    kind: Literal["job"] = "job"


@dataclass(frozen=True, config=_STRICT)
class Line:
    """A line that the driver prints."""

    text: str
    kind: Literal["line"] = "line"


@dataclass(frozen=True, config=_STRICT)
class Page:
    """The address of the driver's web page."""

    address: str
    kind: Literal["page"] = "page"


@dataclass(frozen=True, config=_STRICT)
class Spent:
    """CPU seconds that the driver took, its JVM and its Python."""

    cpu_seconds: float
    kind: Literal["spent"] = "spent"


@dataclass(frozen=True, config=_STRICT)
class Failed:
    """The work failed.

    Attributes:
        error: the error's class, of `exceptions` or not; empty where it is not known.
        text: what the error says, in one line.
        fields: the attributes of an error of this package, for those who handle it.
    """

    error: str
    text: str
    fields: dict[str, Any] = field(default_factory=dict)
    kind: Literal["failed"] = "failed"

    def __str__(self) -> str:
        return f"{self.error}: {self.text}" if self.error else self.text


@dataclass(frozen=True, config=_STRICT)
class Done:
    """The work is done."""

    kind: Literal["done"] = "done"


Told = Annotated[Line | Page | Spent | Failed | Done, Field(discriminator="kind")]
"""What a driver tells."""


@dataclass(frozen=True, config=_STRICT)
class Ask:
    """A task asks a resident process for its time.

    Attributes:
        identity: of the process that it wants, see `spark.resident.identity`.
        deadline: when the job has to be over, by `system.processes.clock`.
    """

    identity: str
    deadline: float
    kind: Literal["ask"] = "ask"


@dataclass(frozen=True, config=_STRICT)
class Accepted:
    """The resident process waits for the work: its process and its process group."""

    pid: int
    group: int
    kind: Literal["accepted"] = "accepted"


@dataclass(frozen=True, config=_STRICT)
class Refused:
    """The resident process does not work for this task."""

    why: str
    kind: Literal["refused"] = "refused"


@dataclass(frozen=True, config=_STRICT)
class Begun:
    """The resident process got its work in time, and begins."""

    kind: Literal["begun"] = "begun"


@dataclass(frozen=True, config=_STRICT)
class Report:
    """What a driver in cluster mode says.

    Attributes:
        driver: a name that it gave itself, and that no other has.
        host: where it runs.
        first: how many messages it has sent before these.
        messages: those since.
        last: whether this is its last report.
        wants: whether it asks for its work.
    """

    driver: str
    host: str
    first: int = 0
    messages: list[Told] = field(default_factory=list)
    last: bool = False
    wants: bool = False
    kind: Literal["report"] = "report"


@dataclass(frozen=True, config=_STRICT)
class Reply:
    """What a driver in cluster mode is told.

    Attributes:
        job: what it has to do, where it asked for it.
        end: why it has to end at once; empty where it goes on.
    """

    job: Job | None = None
    end: str = ""
    kind: Literal["reply"] = "reply"


Message = Job | Line | Page | Spent | Failed | Done | Ask | Accepted | Refused | Begun | Report | Reply
_MESSAGES: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="kind")])


def encode(message: Message) -> str:
    """A message as text."""
    return json.dumps({"version": VERSION, **_MESSAGES.dump_python(message, mode="json")})


def decode(text: str | bytes) -> Message:
    """The message that `encode` wrote.

    Raises:
        ValueError: it is none, or one of another version. The error does not quote it: it may hold a secret.
    """
    try:
        fields = json.loads(text)
        version = fields.pop("version")
    except (ValueError, RecursionError, AttributeError, LookupError, TypeError):
        raise ValueError("it is no message") from None
    if version != VERSION:
        raise ValueError(f"it is of version {version!r:.20} of these messages, and this package speaks {VERSION}")
    try:
        return _MESSAGES.validate_python(fields)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors(include_input=False)[0]["loc"])
        raise ValueError(f"it is no message: {where or 'its kind'} is not what it should be") from None
