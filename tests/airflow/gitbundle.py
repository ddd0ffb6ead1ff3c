"""A git repository of this machine as a DAG bundle with versions, laid out as Airflow's GitDagBundle does it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from airflow.dag_processing.bundles.base import BaseDagBundle, BundleVersion


def git(repository: Path, *arguments: str) -> str:
    """Runs git in a repository; returns what it says."""
    who = ("-c", "user.name=tests", "-c", "user.email=tests@localhost")
    done = subprocess.run(("git", *who, *arguments), cwd=repository, check=True, capture_output=True, text=True)
    return done.stdout.strip()


class GitBundle(BaseDagBundle):
    """The branch `main`; or one commit, in a folder of its own.

    Args:
        repository: the folder of the repository.
    """

    supports_versioning = True

    def __init__(self, *, repository: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._repository = repository

    @property
    def path(self) -> Path:
        return self.versions_dir / self.version if self.version else self.base_dir / "tracking_repo"

    def initialize(self) -> None:
        with self.lock():
            if not self.path.exists():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                git(self.path.parent, "clone", "-q", "-b", "main", self._repository, str(self.path))
                if self.version:
                    git(self.path, "checkout", "-q", self.version)
        super().initialize()

    def get_current_version(self) -> BundleVersion:
        return BundleVersion(git(self.path, "rev-parse", "HEAD"))

    def refresh(self) -> None:
        with self.lock():
            git(self.path, "pull", "-q", "--ff-only")
