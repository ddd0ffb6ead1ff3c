"""The import rule: which room may know which, and none of those that run on executors knows Airflow."""

import ast
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import airflow_provider_slshudi

ROOT = Path(airflow_provider_slshudi.__file__).parent
PACKAGE = "airflow_provider_slshudi"
TYPES = {"datatypes", "timepattern", "jsonpath"}
VOCABULARY = {"exceptions", "ranges", "config", "points", "owners", "processes", "numbered", "native"} | TYPES

# What each room may import of this package, besides itself. Rooms that are not named here belong to Airflow.
ALLOWED = {
    "exceptions": set(),
    "ranges": {"exceptions"},
    "points": set(),
    "owners": set(),
    "processes": set(),
    "numbered": {"native"},
    "native": set(),
    **{name: set() for name in sorted(TYPES)},
    "config": {"exceptions", "ranges"} | TYPES,
    "sls": VOCABULARY,
    "hudi": VOCABULARY,
    "ledger": VOCABULARY,
    "planning": VOCABULARY | {"ledger"},
    # How a batch is cut into tasks is planning's, in terms of the ledger's records; neither opens a database.
    "job": VOCABULARY | {"sls", "hudi", "planning", "ledger"},
    "protocol": VOCABULARY | {"sls", "hudi", "job", "ledger", "planning"},
    "local": VOCABULARY | {"sls"},
}


def modules(room):
    """The files of a room, which is a module or a package."""
    if (ROOT / f"{room}.py").is_file():
        return [ROOT / f"{room}.py"]
    return sorted((ROOT / room).rglob("*.py"))


def imports(path):
    """Every module that a file imports, at any depth of its code."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found


def rooms_of(names):
    """The rooms of this package that the imported names lie in."""
    parts = [name.split(".") for name in names]
    found = {part[1] for part in parts if part[0] == PACKAGE and len(part) > 1}
    return {room for room in found if modules(room)}


@pytest.mark.parametrize("room", ALLOWED)
def test_a_room_knows_only_the_rooms_below_it(room):
    assert modules(room), f"{ROOT / room} holds no module"
    wrong = {
        f"{path.relative_to(ROOT)} imports {other}"
        for path in modules(room)
        for other in rooms_of(imports(path)) - ALLOWED[room] - {room}
    }
    assert not wrong


@pytest.mark.parametrize("room", ALLOWED)
def test_no_module_of_these_rooms_names_airflow(room):
    wrong = [
        str(path.relative_to(ROOT))
        for path in modules(room)
        if any(name.split(".")[0] == "airflow" for name in imports(path))
    ]
    assert not wrong


IMPORT_ALL = """
import importlib, sys

class Forbid:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in forbidden:
            raise ModuleNotFoundError(f"{name} is not installed here", name=name)

forbidden = sys.argv[1].split(",")
sys.meta_path.insert(0, Forbid())
for name in sys.argv[2:]:
    importlib.import_module(name)
print(len(sys.argv) - 2, "imported")
"""


@pytest.mark.parametrize(
    ("rooms", "forbidden"),
    [
        (tuple(ALLOWED), "airflow"),
        (("sls", "hudi", "job"), "airflow,sqlalchemy,alembic,psycopg"),  # what executors run
    ],
)
def test_these_rooms_import_where_those_packages_are_not_installed(rooms, forbidden):
    names = []
    for room in rooms:
        for path in modules(room):
            if path.name == "__main__.py" or "versions" in path.parts or path.name == "env.py":
                continue  # run by Python or Alembic, never imported
            if path.name == "native_decode.py" and find_spec("slshudi_native") is None:
                continue  # what it stands on is optional
            parts = [PACKAGE, *path.relative_to(ROOT).with_suffix("").parts]
            names.append(".".join(part for part in parts if part != "__init__"))
    command = [sys.executable, "-c", IMPORT_ALL, forbidden, *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"{len(names)} imported"
