"""What the docs show can be typed: commands parse, pipeline files load, Python compiles."""

from __future__ import annotations

import argparse
import ast
import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from airflow_provider_slshudi import cli
from airflow_provider_slshudi.cli.notifiers import _BY_CONNECTION
from airflow_provider_slshudi.config.load import load_pipeline
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.handover.names import Act
from airflow_provider_slshudi.views.words import ACTS
from tests.docs.blocks import DOCUMENTS, blocks, commands
from tests.machine import ROOT

STANDS_FOR = {
    "IDENTIFIER": "20260131T080000-1",
    "SHARD:BEGIN-END": "0:1-2",
    "SHARD:BEGIN:END": "0:1:2",
    "TIME": "2026-01-31T08:00:00+08:00",
    "N": "8",
    "ID": "20260131T080000-1",
}
"""What a word in capitals stands for; every other one is a text."""
_LEFT_OUT = re.compile(r"^\[.*\]$|^\.\.\.$")


def typed(command: str) -> list[str]:
    """The words of a command as a person types them: with an option in brackets, without what may be repeated."""
    words = shlex.split(command.partition(" #")[0].replace("[...]", "").replace("[", "").replace("]", ""))
    return [STANDS_FOR.get(word, word) for word in words[1:] if not _LEFT_OUT.match(word)]


def names_a_command_alone(words: list[str]) -> bool:
    """Whether a sentence names a command, `slshudi recover` or `slshudi table mend`, and no arguments of it."""
    tree = cli._parser()
    for word in words:
        groups = [action for action in tree._actions if isinstance(action, argparse._SubParsersAction)]
        if not groups or word not in groups[0].choices:
            return False
        tree = groups[0].choices[word]
    return bool(words)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_command_is_one_that_the_command_line_takes(document: Path) -> None:
    refused = []
    for command in commands(document):
        words = typed(command)
        if words[:1] == ["local-sls"] or words in (["demo"], ["--version"]) or names_a_command_alone(words):
            continue
        try:
            cli._parser().parse_args(words)
        except SystemExit:
            refused.append(command)
    assert not refused


def test_the_commands_of_the_docs_are_found() -> None:
    found = [command for document in DOCUMENTS for command in commands(document)]
    assert len(found) > 120 and any("--engines" in command for command in found)
    assert names_a_command_alone(["table", "mend"]) and not names_a_command_alone(["table", "men"])
    with pytest.raises(SystemExit):
        cli._parser().parse_args(typed("slshudi ledger rebuild NAME --table-is-lost"))


def python_blocks() -> Iterator[tuple[str, str]]:
    """Blocks that say that they are Python, and those that begin as such, with the place of each."""
    for document in DOCUMENTS:
        for block in blocks(document):
            if block.language == "python" or re.match(r"(#.*\n)*(from \w|import \w|dag = |with DAG)", block.text):
                yield f"{document.relative_to(ROOT)}: {block.heading}", block.text


@pytest.mark.parametrize("document", ["README.md", "README.zh-CN.md"])
def test_the_pipeline_of_the_readme_is_one(document: str, tmp_path: Path) -> None:
    [text] = [block.text for block in blocks(ROOT / document) if block.text.startswith("name: clicks")]
    file = tmp_path / "clicks.yaml"
    file.write_text(text, encoding="utf-8")
    assert load_pipeline(file).name == "clicks"


def test_parts_of_pipeline_files_are_parts_of_one() -> None:
    """Blocks of YAML that begin with a field of the file, put into the README's pipeline."""
    [whole] = [block.text for block in blocks(ROOT / "README.md") if block.text.startswith("name: clicks")]
    loaded = 0
    for document in sorted((ROOT / "docs").glob("*.md")):
        for block in blocks(document):
            if re.match(rf"(?:#.*\n)?({'|'.join(Pipeline.model_fields)}):", block.text):
                described = yaml.safe_load(whole)
                part = yaml.safe_load(block.text)
                if {"source", "table", "columns"} <= set(part):
                    Pipeline.model_validate(part)
                    continue
                if isinstance(part.get("table"), dict):
                    part["columns"] = [{"name": name, "type": kind} for name, kind in COLUMNS_OF_UPSERTS.items()]
                if "columns" not in part:
                    described["columns"] += [{"name": name, "type": kind} for name, kind in COLUMNS.items()]
                else:
                    del described["table"]["partition"]
                Pipeline.model_validate({**described, **part})
                loaded += 1
    assert loaded >= 6


COLUMNS_OF_UPSERTS = {"id": "string", "region": "string", "updated_at": "bigint", "is_deleted": "boolean"}
COLUMNS = {"campaign_id": "string", "event_time": "date"}
"""Columns that the blocks name, and leave to their reader."""


@pytest.mark.parametrize(("place", "text"), [pytest.param(*found, id=found[0]) for found in python_blocks()])
def test_python_compiles_and_imports_names_that_are_there(place: str, text: str) -> None:
    for node in ast.walk(ast.parse(text, place)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("airflow"):
            if node.module.startswith("airflow.providers."):
                pytest.importorskip(node.module)
            module = import_module(node.module)
            assert not [alias.name for alias in node.names if not hasattr(module, alias.name)]


def test_the_example_of_a_notifier_is_what_init_writes() -> None:
    text = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    apprise = _BY_CONNECTION["apprise"]
    assert f"{apprise.imports}\n" in text and f"alerts = {apprise.notifier}\n" in text


def test_pages_name_the_acts_that_there_are() -> None:
    text = (ROOT / "docs" / "pages.md").read_text(encoding="utf-8")
    headed = r"^\| act of (?:`clicks_operations` or )?`clicks_(\w+)` \|.*\n\|[-|]+\|\n((?:\|.*\n)+)"
    tables = re.findall(headed, text, re.MULTILINE)
    named = {(re.split(r" *\| *", row)[1], role) for role, rows in tables for row in rows.splitlines()}
    assert named == {(f"{ACTS[act]} (`{act.value}`)", act.role) for act in Act}


@pytest.mark.parametrize("translated", sorted((ROOT / "docs").glob("*.zh.md")), ids=lambda path: path.name)
def test_a_translation_shows_the_same_code_under_as_many_headings(translated: Path) -> None:
    original = translated.with_name(translated.name.replace(".zh", ""))
    texts = [[block for block in blocks(page) if block.language] for page in (original, translated)]
    assert [(block.language, block.text) for block in texts[0]] == [(block.language, block.text) for block in texts[1]]
    headings = [re.findall(r"^#+ ", page.read_text(encoding="utf-8"), re.MULTILINE) for page in (original, translated)]
    assert headings[0] == headings[1]
