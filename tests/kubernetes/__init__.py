"""Kubernetes as processes: an API server, and a kubelet that runs each pod as a child of this process.

Spark's Kubernetes client, what it asks for, drivers and executors are real. Containers, their network and their names
are not: all pods are at 127.0.0.1, on this machine's files. The API server is Kubernetes' own, with its checks and its
authorization, where it was built (`make kubernetes`), and one of the tests' that keeps objects in memory elsewhere.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.kubernetes.access import Access, Json
from tests.kubernetes.apiserver import Programs, apiserver
from tests.kubernetes.kubelet import Kubelet
from tests.kubernetes.memory import memory


@dataclass(frozen=True)
class Kubernetes:
    """A running cluster: how its administrator asks, the file with which clients find and ask it, and its pods."""

    access: Access
    config: Path
    kubelet: Kubelet

    def pods(self, role: str) -> list[Json]:
        """The pods of a role, `driver` or `executor`, as they were made."""
        made = [item for item in self.kubelet.seen if "containers" in item.get("spec", {})]
        return [item for item in made if item["metadata"]["labels"]["spark-role"] == role]


@contextmanager
def kubernetes(programs: Programs | None) -> Iterator[Kubernetes]:
    """A cluster with room for all pods; its API server is of these programs, or the tests' own."""
    with tempfile.TemporaryDirectory(prefix="slshudi-kubernetes-") as directory, ExitStack() as stack:
        if programs is None:
            access = tasks = stack.enter_context(memory())
        else:
            access, tasks = stack.enter_context(apiserver(programs))
        folder = Path(directory)
        config, pods = folder / "config", folder / "pods"
        config.write_text(json.dumps(tasks.kubeconfig()))
        pods.mkdir()
        yield Kubernetes(access, config, stack.enter_context(Kubelet(access, pods).running()))
