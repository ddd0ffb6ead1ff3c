"""The texts that `slshudi init` writes, whatever logs hold, and how it writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_provider_slshudi.cli import draft
from airflow_provider_slshudi.cli.prompts import write_new
from airflow_provider_slshudi.config.load import parse_pipeline
from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.rows.suggest import Suggestion

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXTS)
@example("a\nb")
@example("x\n  - {name: evil}")
@example("\x85\u2028\u2029\ufeff\u202e")
@example("\U0001f600 \xa0")
@example("'\"\\ # : - ? & * ! | > % @ `")
def test_a_text_is_one_line_that_can_be_printed_and_is_read_as_it_was(text: str) -> None:
    for value in (text, {"key": text}, [text, {"a": text}]):
        line = draft.flow(value)
        assert line.isprintable()
        assert yaml.safe_load(f"field: {line} # {draft.readable(text)}") == {"field": value}
        assert yaml.safe_load(f"# {line}") is None


@given(TEXTS.filter(bool), TEXTS, TEXTS, st.floats(0, 1))
def test_a_pipeline_file_has_the_key_of_each_column(key: str, value: str, note: str, share: float) -> None:
    found = [
        Suggestion("__time__", "log_time", "timestamp", "seconds", 100, 1.0, "1767225600"),
        Suggestion(key, "it", "string", None, 1, share, value, note),
    ]
    source = {"connection": "sls_default", "project": "shop", "logstore": "clicks"}
    table = {"path": "file:///lake/clicks", "name": "clicks"}
    text = draft.pipeline("1e3", source, table, found, "looked at")
    made = parse_pipeline(text, "it")
    assert made.name == "1e3"
    assert [column.source_key for column in made.columns] == ["__time__", *([key] if share >= draft.RARE else [])]


@pytest.mark.parametrize(
    ("name", "table"), [("Ad-Events.v2", "ad_events_v2"), ("9", "t_9"), ("_hoodie_", "t__hoodie_")]
)
def test_a_table_is_named_after_its_pipeline(name: str, table: str) -> None:
    assert draft.name_of(name) == table


def test_files_are_written_all_or_none(tmp_path: Path) -> None:
    first, folder = tmp_path / "new" / "pipelines" / "a.yaml", tmp_path / "dags"
    folder.mkdir()
    (folder / "there.py").write_text("mine")
    too_long = folder / ("x" * 300)
    for second, said in ((folder / "there.py", "is there already"), (too_long, "cannot be written: ")):
        with pytest.raises(ConfigError, match=said):
            write_new({first: "a", second: "b"})
        assert sorted(tmp_path.rglob("*")) == [folder, folder / "there.py"]
    assert (folder / "there.py").read_text() == "mine"
    # A link that leads nowhere is somebody's, too.
    (folder / "link.py").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="is there already"):
        write_new({first: "a", folder / "link.py": "b"})
    before = os.umask(0o027)
    try:
        write_new({first: "a", folder / "b.py": "b"})
    finally:
        os.umask(before)
    assert first.read_text() == "a" and (folder / "b.py").stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in folder.iterdir()) == ["b.py", "link.py", "there.py"]
