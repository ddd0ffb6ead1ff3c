"""The walls between the rooms: which may know which, and that none of those that run on executors knows Airflow."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import airflow_provider_slshudi

ROOT = Path(airflow_provider_slshudi.__file__).parent
PACKAGE = "airflow_provider_slshudi"
VOCABULARY = {"exceptions", "planning", "system", "storage", "config"}
"""What every room may speak of."""

# What each room may import of this package, besides itself. A name stands for all below it that is no room of its own.
ALLOWED: dict[str, set[str]] = {
    # Names for DAG files, each imported once it is asked for.
    "": {"config", "dag", "hooks", "operators", "sensors", "triggers"},
    "exceptions": set(),
    "system": set(),
    "storage": {"exceptions", "system"},
    # An expression is checked with the file, and read once the file has one.
    "config": {"exceptions", "shaping.grammar", "shaping.regex"},
    # Cursors, and which ranges a batch has.
    "planning": {"exceptions", "config"},
    "sls": VOCABULARY | {""},
    "ledger": VOCABULARY,
    "handover": VOCABULARY,
    # Logs become rows by Arrow alone.
    "rows": VOCABULARY | {"sls.columns", "shaping"},
    # What becomes of a log before it is a row.
    "shaping": VOCABULARY | {"sls.columns", "rows.casts", "rows.convert", "rows.documents", "rows.times"},
    # Without a JVM.
    "hudi": VOCABULARY | {"handover"},
    # The same base files for readers of Iceberg and Delta, in a task's process.
    "mirror": VOCABULARY | {"handover", "hudi"},
    # On executors.
    "hudi.files": VOCABULARY | {"handover", "rows", "hudi"},
    # Inside a driver.
    "hudi.client": VOCABULARY | {"handover", "hudi", "hudi.files"},
    # Asks for drivers, and knows how Spark is started.
    "spark": VOCABULARY | {"", "handover"},
    # What drivers run; no other room imports it.
    "spark.driver": VOCABULARY | {"sls", "handover", "rows", "shaping", "hudi", "hudi.files", "hudi.client", "spark"},
    "transaction": VOCABULARY | {"sls", "ledger", "handover", "hudi", "spark"},
    # What comes behind a commit.
    "downstream": VOCABULARY | {"ledger", "handover", "hudi", "transaction"},
    "services": VOCABULARY | {"sls", "ledger", "handover", "hudi", "mirror", "spark", "transaction"},
    "repair": VOCABULARY | {"sls", "ledger", "handover", "hudi", "transaction", "services"},
    # What people see.
    "views": VOCABULARY | {"ledger", "handover", "transaction", "repair"},
    # Looks at all that pipelines need.
    "doctor": VOCABULARY | {"sls", "ledger", "handover", "hudi", "spark", "transaction"},
    "local": VOCABULARY | {"sls"},
}
_BELOW_AIRFLOW = set(ALLOWED) - {"spark.driver", "hudi.files", "hudi.client", "local"}
_OF_AIRFLOW: dict[str, set[str]] = {
    "dagfile": set(),
    "settings": {"config", "exceptions", "dagfile"},
    "plugins.links": {"settings", "exceptions", "dagfile", "handover"},
    "hooks": _BELOW_AIRFLOW | {"settings", "dagfile"},
    "operators": _BELOW_AIRFLOW | {"settings", "dagfile", "plugins.links", "hooks"},
    "triggers": _BELOW_AIRFLOW | {"settings", "hooks", "operators"},
    "sensors": _BELOW_AIRFLOW | {"settings", "hooks", "operators", "triggers"},
    "dag": _BELOW_AIRFLOW | {"settings", "dagfile", "operators", "sensors"},
    # Pages, and what Airflow's scheduler imports for the tasks that are forked from it.
    "plugins": _BELOW_AIRFLOW | {"settings", "hooks", "dag"},
    "get_provider_info": {""},
    "cli": _BELOW_AIRFLOW | {"settings", "hooks", "operators", "cli.demo"},
    "cli.demo": _BELOW_AIRFLOW | {"settings", "hooks", "local", "cli"},
}
ROOMS = ALLOWED | _OF_AIRFLOW


def name_of(path: Path) -> str:
    """A file's name within the package, with dots; of a package's `__init__` the package's."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}


def room_of(module: str) -> str | None:
    """The room with the longest name that the module lies in."""
    parts = module.split(".")
    names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((name for name in names if name in ROOMS), "" if module == "" else None)


def imports(path: Path) -> list[str]:
    """Every module that a file imports, at any depth of its code."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None, f"{path}:{node.lineno}: relative import"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.append(whole if whole.removeprefix(f"{PACKAGE}.") in MODULES else node.module)
    return found


def ours(path: Path) -> Iterator[str]:
    """The modules of this package that a file imports."""
    for name in imports(path):
        if name == PACKAGE or name.startswith(f"{PACKAGE}."):
            yield name.removeprefix(PACKAGE).removeprefix(".")


def test_every_module_is_in_a_room() -> None:
    assert [name for name in MODULES if room_of(name) is None] == []
    assert [room for room in ROOMS if room not in set(map(room_of, MODULES))] == []


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_knows_only_the_rooms_below_it(room: str) -> None:
    wrong = {
        f"{module} imports {other}"
        for module, path in MODULES.items()
        if room_of(module) == room
        for other in ours(path)
        if room_of(other) != room and not {room_of(other), other} & ROOMS[room]
    }
    assert not wrong


@pytest.mark.parametrize("room", ALLOWED)
def test_no_module_of_these_rooms_names_airflow(room: str) -> None:
    wrong = [
        module
        for module, path in MODULES.items()
        if room_of(module) == room and any(name.split(".")[0] == "airflow" for name in imports(path))
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
        # What drivers and executors run.
        (
            ("sls", "handover", "rows", "hudi", "hudi.files", "hudi.client", "spark.driver"),
            "airflow,sqlalchemy,alembic,psycopg",
        ),
        (("rows", "config"), "airflow,sqlalchemy,pyspark,aliyun"),
        (("handover", "hudi", "planning"), "airflow,sqlalchemy,pyspark"),
    ],
)
def test_these_rooms_import_where_those_packages_are_not_installed(rooms: tuple[str, ...], forbidden: str) -> None:
    names = []
    for module, path in MODULES.items():
        if room_of(module) not in rooms:
            continue
        if path.name == "__main__.py" or "versions" in path.parts or path.name == "env.py":
            continue  # run by Python or Alembic, never imported
        if path.name == "native_decode.py" and find_spec("slshudi_native") is None:
            continue  # what it stands on is optional
        names.append(f"{PACKAGE}.{module}".rstrip("."))
    command = [sys.executable, "-c", IMPORT_ALL, forbidden, *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"{len(names)} imported"
