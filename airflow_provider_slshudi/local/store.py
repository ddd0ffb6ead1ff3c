"""Projects, logstores and shards in one directory.

PROJECT/project.json                       its description and times
PROJECT/LOGSTORE/logstore.json             its settings and shards, replaced as a whole
PROJECT/LOGSTORE/shards/ID/FIRST.groups    a shard's log groups, see `shardlog`
PROJECT/LOGSTORE/consumergroups.json       see `consumers`
"""

from __future__ import annotations

import json
import re
import shutil
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from airflow_provider_slshudi.local.consumer_groups import ConsumerGroups
from airflow_provider_slshudi.local.files import replace_json
from airflow_provider_slshudi.local.service_errors import (
    ServiceFault,
    logstore_not_exist,
    parameter_invalid,
    project_not_exist,
    shard_not_exist,
)
from airflow_provider_slshudi.local.shardlog import ShardLog

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{1,61}[a-z0-9]")
_KEY = re.compile(r"[0-9a-fA-F]{32}")
_KEYS = 1 << 128
_LAST_KEY = "f" * 32
_MOST_SHARDS = 256
_DEFAULTS = {"ttl": 30, "enable_tracking": False, "autoSplit": True, "maxSplitShard": 64, "appendMeta": False}
# A logstore keeps and returns these settings too; they have no effect here.
_KEPT = {"telemetryType": str, "mode": str, "hot_ttl": int, "infrequentAccessTTL": int, "enableModify": bool}
_TYPES = {**{name: type(value) for name, value in _DEFAULTS.items()}, **_KEPT}

FOREVER = 3650
"""A logstore's ttl in days from which on nothing expires."""

DAY = 24 * 60 * 60
"""Seconds of a day of a logstore's ttl."""


@dataclass(slots=True)
class Shard:
    """A shard's place among the hash keys; its fields have the service's own names, on disk and in answers."""

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
    """A logstore's settings, shards and consumer groups; a day of its ttl lasts `day` seconds."""

    def __init__(self, directory: Path, settings: dict[str, Any], shards: list[Shard], day: int) -> None:
        self.directory, self.settings, self.shards = directory, settings, shards
        self._closed: dict[int, int] = {}  # closed shards, and when that was, in unix seconds
        self.groups = ConsumerGroups(directory / "consumergroups.json")
        self._logs: dict[int, ShardLog] = {}
        self._turn, self._day = 0, day

    @classmethod
    def create(cls, directory: Path, asked: dict[str, Any], day: int) -> Logstore:
        """A new logstore from the body of CreateLogstore, its shards sharing the hash keys evenly."""
        count = asked.get("shardCount", 2)
        if type(count) is not int or not 1 <= count <= _MOST_SHARDS:
            raise parameter_invalid(f"shardCount {count!r}: expected 1 to {_MOST_SHARDS}")
        now = int(time.time())
        named = {"logstoreName": directory.name, "createTime": now, "lastModifyTime": now}
        logstore = cls(directory, {**_DEFAULTS, **_settings(asked), **named}, [], day)
        bounds = [f"{_KEYS * place // count:032x}" for place in range(count)] + [_LAST_KEY]
        for begin, end in pairwise(bounds):
            logstore._add(begin, end)
        logstore._save()
        return logstore

    @classmethod
    def load(cls, directory: Path, day: int) -> Logstore:
        """The logstore that `directory` holds."""
        saved = json.loads((directory / "logstore.json").read_text())
        logstore = cls(directory, saved["settings"], [Shard(**shard) for shard in saved["shards"]], day)
        for shard in logstore.shards:
            if not shard.writable:
                logstore._closed[shard.shardID] = saved["closed"][str(shard.shardID)]
            logstore._logs[shard.shardID] = ShardLog.open(logstore._path(shard.shardID))
        return logstore

    def describe(self) -> dict[str, Any]:
        """The answer of GetLogstore."""
        return {**self.settings, "shardCount": sum(shard.writable for shard in self.shards)}

    def update(self, asked: dict[str, Any]) -> None:
        """Change the settings that UpdateLogstore may change."""
        self.settings.update(_settings(asked), lastModifyTime=int(time.time()))
        self._save()

    def log(self, shard: int) -> ShardLog:
        """A shard's log groups that have not expired. Raises ShardNotExist."""
        if shard not in self._logs:
            raise shard_not_exist(shard)
        log = self._logs[shard]
        if (before := self._expired_before()) is not None:
            log.expire(before)
        return log

    def expire_shards(self) -> None:
        """Delete the shards that were closed so long ago that all their logs expired, as the service does."""
        if (before := self._expired_before()) is not None:
            for shard in [shard for shard, closed in self._closed.items() if closed < before]:
                self.delete(shard)

    def choose(self, key: str | None) -> int:
        """The shard that a put goes to: the one that owns `key`; without a key the writable shards in turn."""
        writable = [shard for shard in self.shards if shard.writable]
        if key is None:
            self._turn += 1
            return writable[self._turn % len(writable)].shardID
        owned = _key(key)
        return next(shard for shard in writable if shard.owns(owned)).shardID

    def split(self, shard: int, key: str) -> list[Shard]:
        """Close a shard and share its hash keys among two new ones at `key`; returns the old one and the new ones."""
        old, middle = self._writable(shard), _key(key)
        if not old.inclusiveBeginKey < middle < old.exclusiveEndKey:
            raise parameter_invalid("invalid mid hash")
        halves = [self._add(old.inclusiveBeginKey, middle), self._add(middle, old.exclusiveEndKey)]
        self._close(old)
        return [old, *halves]

    def merge(self, shard: int) -> list[Shard]:
        """Close a shard and its right neighbour; give their keys to a new one. Returns the new one and the old ones."""
        left = self._writable(shard)
        right = next((s for s in self.shards if s.writable and s.inclusiveBeginKey == left.exclusiveEndKey), None)
        if right is None:
            raise parameter_invalid("can not merge the last shard")
        merged = self._add(left.inclusiveBeginKey, right.exclusiveEndKey)
        self._close(left, right)
        return [merged, left, right]

    def delete(self, shard: int) -> None:
        """Remove a shard that was split or merged, with its log groups."""
        self.log(shard)
        shards = [item for item in self.shards if item.shardID != shard or item.writable]
        if len(shards) == len(self.shards):
            raise parameter_invalid(f"shard {shard} is readwrite: only a readonly shard can be deleted")
        self.shards = shards
        self._closed.pop(shard)
        self._save()
        self._logs.pop(shard).close()
        shutil.rmtree(self._path(shard))
        self.groups.forget(shard)

    def close(self) -> None:
        """Close all files."""
        for log in self._logs.values():
            log.close()

    def _expired_before(self) -> int | None:
        """The time, in unix seconds, before which logs have expired; None if they never expire."""
        ttl: int = self.settings["ttl"]
        return None if ttl >= FOREVER else int(time.time()) - ttl * self._day

    def _close(self, *shards: Shard) -> None:
        for shard in shards:
            shard.status = "readonly"
            self._closed[shard.shardID] = int(time.time())
        self._save()

    def _writable(self, shard: int) -> Shard:
        entry = next((item for item in self.shards if item.shardID == shard), None)
        if entry is None:
            raise shard_not_exist(shard)
        if not entry.writable:
            raise parameter_invalid(f"invalid shard id: shard {shard} is readonly")
        return entry

    def _add(self, begin: str, end: str) -> Shard:
        # The shard with the largest id is writable, so it cannot have been deleted: no id comes back.
        id_ = 1 + max((shard.shardID for shard in self.shards), default=-1)
        shard = Shard(id_, "readwrite", begin, end, int(time.time()))
        shutil.rmtree(self._path(shard.shardID), ignore_errors=True)  # of a change that a kill kept from being saved
        # Cursors start at a large number that means nothing to clients, another one for each shard.
        self._logs[shard.shardID] = ShardLog.create(self._path(shard.shardID), time.time_ns())
        self.shards.append(shard)
        return shard

    def _path(self, shard: int) -> Path:
        return self.directory / "shards" / str(shard)

    def _save(self) -> None:
        shards = [asdict(shard) for shard in self.shards]
        saved = {"settings": self.settings, "shards": shards, "closed": self._closed}
        replace_json(self.directory / "logstore.json", saved)


class Store:
    """All projects. Not for several threads; one process per directory. `day`: seconds of a day of retention."""

    def __init__(self, directory: Path, day: int = DAY) -> None:
        self._directory, self._day = directory, day
        directory.mkdir(parents=True, exist_ok=True)
        self._projects: dict[str, dict[str, Any]] = {}
        self._logstores: dict[str, dict[str, Logstore]] = {}
        for path in sorted(directory.glob("*/project.json")):
            project = path.parent
            self._projects[project.name] = json.loads(path.read_text())
            files = sorted(project.glob("*/logstore.json"))
            self._logstores[project.name] = {file.parent.name: Logstore.load(file.parent, day) for file in files}

    def create_project(self, name: str, asked: dict[str, Any]) -> None:
        """Make a project from the body of CreateProject."""
        _check_name("project", name)
        if name in self._projects:
            raise ServiceFault(400, "ProjectAlreadyExist", f"Project {name} already exist.")
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        project = {
            "projectName": name,
            "description": _text(asked, "description"),
            "resourceGroupId": _text(asked, "resourceGroupId"),
            "status": "Normal",
            "region": "cn-local",
            "owner": "",
            "createTime": now,
            "lastModifyTime": now,
        }
        _clear(self._directory / name)
        replace_json(self._directory / name / "project.json", project)
        self._projects[name], self._logstores[name] = project, {}

    def update_project(self, name: str, asked: dict[str, Any]) -> None:
        """Change the description, which UpdateProject may change."""
        changed = {"description": _text(asked, "description"), "lastModifyTime": time.strftime("%Y-%m-%d %H:%M:%S")}
        project = {**self.project(name), **changed}
        replace_json(self._directory / name / "project.json", project)
        self._projects[name] = project

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
        logstores[name] = Logstore.create(self._directory / project / name, asked, self._day)

    def logstore(self, project: str, name: str) -> Logstore:
        """A logstore without its expired shards. Raises ProjectNotExist and LogStoreNotExist."""
        logstores = self.logstores(project)
        if name not in logstores:
            raise logstore_not_exist(name)
        logstores[name].expire_shards()
        return logstores[name]

    def delete_logstore(self, project: str, name: str) -> None:
        """Remove a logstore and its log groups."""
        logstore = self.logstore(project, name)
        logstore.close()
        # Without this file it is no logstore: a kill from here on leaves only rubbish.
        (logstore.directory / "logstore.json").unlink()
        _clear(logstore.directory)
        del self.logstores(project)[name]


def _settings(asked: dict[str, Any]) -> dict[str, Any]:
    """The settings that a logstore keeps from the body of CreateLogstore or UpdateLogstore."""
    settings = {name: asked[name] for name in _TYPES if asked.get(name) is not None}
    for name, value in settings.items():
        if type(value) is not _TYPES[name]:
            raise parameter_invalid(f"{name} {value!r}: expected a value like {_TYPES[name]()!r}")
    if not 1 <= settings.get("ttl", 1) <= FOREVER:
        raise parameter_invalid(f"ttl {settings['ttl']}: expected 1 to {FOREVER} days")
    return settings


def _text(asked: dict[str, Any], name: str) -> str:
    value = asked.get(name, "")
    if not isinstance(value, str):
        raise parameter_invalid(f"{name} {value!r}: expected a text")
    return value


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
