"""Projects, logstores and shards in one directory.

PROJECT/project.json                       its description and times
PROJECT/LOGSTORE/logstore.json             its settings and shards, replaced as a whole
PROJECT/LOGSTORE/shards/ID/FIRST.groups    a shard's log groups, see `segment`
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from airflow_provider_slshudi.local.faults import (
    ServiceFault,
    logstore_not_exist,
    parameter_invalid,
    project_not_exist,
    shard_not_exist,
)
from airflow_provider_slshudi.local.segment import Segment

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{1,61}[a-z0-9]")
_KEY = re.compile(r"[0-9a-fA-F]{32}")
_KEYS = 1 << 128
_LAST_KEY = "f" * 32
_MOST_SHARDS = 256
_DEFAULTS = {"ttl": 30, "enable_tracking": False, "autoSplit": True, "maxSplitShard": 64, "appendMeta": False}


@dataclass(slots=True)
class Shard:
    """A shard's place among the hash keys, in the service's own words, which are written and answered as they are."""

    shardID: int
    status: str
    inclusiveBeginKey: str
    exclusiveEndKey: str
    createTime: int

    def owns(self, key: str) -> bool:
        """Whether a put with this hash key goes here; the very last key belongs to the last shard."""
        return self.inclusiveBeginKey <= key and (key < self.exclusiveEndKey or self.exclusiveEndKey == _LAST_KEY)

    @property
    def writable(self) -> bool:
        """Whether it takes puts: until it is split or merged."""
        return self.status == "readwrite"


class Logstore:
    """A logstore's settings and shards, and their segments."""

    def __init__(self, directory: Path, settings: dict[str, Any], shards: list[Shard]) -> None:
        self.directory, self.settings, self.shards = directory, settings, shards
        self._segments: dict[int, Segment] = {}
        self._turn = 0

    @classmethod
    def create(cls, directory: Path, asked: dict[str, Any]) -> Logstore:
        """A new logstore from the body of CreateLogstore, its shards sharing the hash keys evenly."""
        count = asked.get("shardCount", 2)
        if not isinstance(count, int) or not 1 <= count <= _MOST_SHARDS:
            raise parameter_invalid(f"shardCount {count!r}: expected 1 to {_MOST_SHARDS}")
        now = int(time.time())
        logstore = cls(directory, {**_DEFAULTS, **asked, "createTime": now, "lastModifyTime": now}, [])
        bounds = [f"{_KEYS * place // count:032x}" for place in range(count)] + [_LAST_KEY]
        for begin, end in pairwise(bounds):
            logstore._add(begin, end)
        logstore._save()
        return logstore

    @classmethod
    def load(cls, directory: Path) -> Logstore:
        """The logstore that `directory` holds."""
        saved = json.loads((directory / "logstore.json").read_text())
        logstore = cls(directory, saved["settings"], [Shard(**shard) for shard in saved["shards"]])
        for shard in logstore.shards:
            logstore._segments[shard.shardID] = Segment.open(logstore._path(shard.shardID))
        return logstore

    def describe(self) -> dict[str, Any]:
        """The answer of GetLogstore."""
        return {**self.settings, "shardCount": sum(shard.writable for shard in self.shards)}

    def update(self, asked: dict[str, Any]) -> None:
        """Take over the settings that UpdateLogstore may change."""
        kept = ("logstoreName", "shardCount", "createTime")
        changed = {name: value for name, value in asked.items() if name not in kept}
        self.settings.update(changed, lastModifyTime=int(time.time()))
        self._save()

    def segment(self, shard: int) -> Segment:
        """A shard's log groups. Raises ShardNotExist."""
        if shard not in self._segments:
            raise shard_not_exist(shard)
        return self._segments[shard]

    def put(self, group: bytes, key: str | None) -> None:
        """Append a LogGroup to the shard that owns `key`, or without one to the writable shards in turn."""
        writable = [shard for shard in self.shards if shard.writable]
        if key is None:
            self._turn += 1
            shard = writable[self._turn % len(writable)]
        else:
            shard = next(shard for shard in writable if shard.owns(_key(key)))
        self._segments[shard.shardID].append(group)

    def split(self, shard: int, key: str) -> list[Shard]:
        """Close a shard and share its hash keys among two new ones at `key`: the old one and the new ones."""
        old, middle = self._writable(shard), _key(key)
        if not old.inclusiveBeginKey < middle < old.exclusiveEndKey:
            raise parameter_invalid("invalid mid hash")
        halves = [self._add(old.inclusiveBeginKey, middle), self._add(middle, old.exclusiveEndKey)]
        old.status = "readonly"
        self._save()
        return [old, *halves]

    def merge(self, shard: int) -> list[Shard]:
        """Close a shard and its right neighbour and give their hash keys to a new one: the new one and the old ones."""
        left = self._writable(shard)
        right = next((s for s in self.shards if s.writable and s.inclusiveBeginKey == left.exclusiveEndKey), None)
        if right is None:
            raise parameter_invalid("can not merge the last shard")
        merged = self._add(left.inclusiveBeginKey, right.exclusiveEndKey)
        left.status = right.status = "readonly"
        self._save()
        return [merged, left, right]

    def close(self) -> None:
        """Close all files."""
        for segment in self._segments.values():
            segment.close()

    def _writable(self, shard: int) -> Shard:
        found = next((item for item in self.shards if item.shardID == shard), None)
        if found is None:
            raise shard_not_exist(shard)
        if not found.writable:
            raise parameter_invalid(f"invalid shard id: shard {shard} is readonly")
        return found

    def _add(self, begin: str, end: str) -> Shard:
        shard = Shard(len(self.shards), "readwrite", begin, end, int(time.time()))
        shutil.rmtree(self._path(shard.shardID), ignore_errors=True)  # of a change that a kill kept from being saved
        # Cursors start at a large number of no meaning to clients, another one for each shard.
        self._segments[shard.shardID] = Segment.create(self._path(shard.shardID), time.time_ns())
        self.shards.append(shard)
        return shard

    def _path(self, shard: int) -> Path:
        return self.directory / "shards" / str(shard)

    def _save(self) -> None:
        saved = {"settings": self.settings, "shards": [asdict(shard) for shard in self.shards]}
        _replace(self.directory / "logstore.json", saved)


class Store:
    """All projects. Not for several threads; one process per directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._projects: dict[str, dict[str, Any]] = {}
        self._logstores: dict[str, dict[str, Logstore]] = {}
        for path in sorted(directory.glob("*/project.json")):
            project = path.parent
            self._projects[project.name] = json.loads(path.read_text())
            made = sorted(project.glob("*/logstore.json"))
            self._logstores[project.name] = {file.parent.name: Logstore.load(file.parent) for file in made}

    def create_project(self, name: str, asked: dict[str, Any]) -> None:
        """Make a project from the body of CreateProject."""
        _check_name("project", name)
        if name in self._projects:
            raise ServiceFault(400, "ProjectAlreadyExist", f"Project {name} already exist.")
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        project = {
            "projectName": name,
            "description": asked.get("description", ""),
            "resourceGroupId": asked.get("resourceGroupId", ""),
            "status": "Normal",
            "region": "cn-local",
            "owner": "",
            "createTime": now,
            "lastModifyTime": now,
        }
        _clear(self._directory / name)
        _replace(self._directory / name / "project.json", project)
        self._projects[name], self._logstores[name] = project, {}

    def projects(self) -> list[dict[str, Any]]:
        """All projects, by name."""
        return [self._projects[name] for name in sorted(self._projects)]

    def project(self, name: str) -> dict[str, Any]:
        """The answer of GetProject. Raises ProjectNotExist."""
        if name not in self._projects:
            raise project_not_exist(name)
        return self._projects[name]

    def delete_project(self, name: str) -> None:
        """Remove a project with everything in it."""
        self.project(name)
        for logstore in list(self._logstores[name]):
            self.delete_logstore(name, logstore)
        (self._directory / name / "project.json").unlink()
        _clear(self._directory / name)
        del self._projects[name], self._logstores[name]

    def logstores(self, project: str) -> dict[str, Logstore]:
        """A project's logstores by name. Raises ProjectNotExist."""
        self.project(project)
        return self._logstores[project]

    def create_logstore(self, project: str, asked: dict[str, Any]) -> None:
        """Make a logstore from the body of CreateLogstore."""
        logstores, name = self.logstores(project), str(asked.get("logstoreName", ""))
        _check_name("logstore", name)
        if name in logstores:
            raise ServiceFault(400, "LogStoreAlreadyExist", f"logstore {name} already exists")
        _clear(self._directory / project / name)
        logstores[name] = Logstore.create(self._directory / project / name, asked)

    def logstore(self, project: str, name: str) -> Logstore:
        """A logstore. Raises ProjectNotExist and LogStoreNotExist."""
        logstores = self.logstores(project)
        if name not in logstores:
            raise logstore_not_exist(name)
        return logstores[name]

    def delete_logstore(self, project: str, name: str) -> None:
        """Remove a logstore and its log groups."""
        logstore = self.logstore(project, name)
        logstore.close()
        (logstore.directory / "logstore.json").unlink()  # what makes it one, so a kill from here on leaves only rubbish
        _clear(logstore.directory)
        del self.logstores(project)[name]


def page(
    items: list[Any], key: str, query: dict[str, str], name_of: Callable[[Any], str], pattern: str
) -> dict[str, Any]:
    """The answer of a listing: those whose name holds `pattern`, cut to the query's offset and size."""
    try:
        offset, size = int(query.get("offset", 0)), int(query.get("size", 100))
    except ValueError:
        raise parameter_invalid("offset and size are integers") from None
    found = [item for item in items if pattern in name_of(item)]
    cut = found[offset : offset + size]
    return {"count": len(cut), "total": len(found), key: cut}


def _check_name(what: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        message = (
            f"{what} name {name!r} is invalid: 3 to 63 of a-z, 0-9, - and _, beginning and ending with one of a-z0-9"
        )
        raise parameter_invalid(message)


def _key(text: str) -> str:
    if not _KEY.fullmatch(text):
        raise parameter_invalid(f"invalid hash key {text!r}: expected 32 hexadecimal digits")
    return text.lower()


def _clear(directory: Path) -> None:
    if directory.exists():
        shutil.rmtree(directory)


def _replace(path: Path, content: dict[str, Any]) -> None:
    """Write JSON so that a kill leaves the old content or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(content, indent=1))
    new.replace(path)
