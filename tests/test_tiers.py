"""`make test` shows each capability for real, and leaves the long rest to `make test-all`."""

from __future__ import annotations

import ast
from collections import Counter

from tests.machine import ROOT

CAPABILITIES = {
    "append",
    "upsert",
    "replay",
    "quarantine",
    "clustering",
    "compaction",
    "cleaning",
    "mending",
    "verify",
    "rebuild",
    "erasure by others",
    "catalog",
    "mirrors",
    "a scheduler whose driver is killed",
    "a backfill beside the tail",
    "a DAG behind complete partitions",
    "PostgreSQL, a cluster and S3",
    "filters",
    "masks",
    "several logstores",
    "routes",
}


def marked() -> list[str]:
    """The names that tests give the marker `capability`."""
    names = []
    for file in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.capability":
                (name,) = node.args
                names.append(ast.literal_eval(name))
    return names


def test_each_capability_is_shown_by_one_test() -> None:
    assert Counter(marked()) == Counter(CAPABILITIES)
