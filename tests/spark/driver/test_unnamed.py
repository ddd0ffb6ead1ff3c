"""A task looks at some of its logs for keys that no column names."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import pyarrow as pa
import pytest
from aliyun.log.log_logs_raw_pb2 import LogGroupListRaw

from airflow_provider_slshudi.config.columns import Column, NamedKeys
from airflow_provider_slshudi.handover.batch_files import EXAMPLES, MOST, Unnamed
from airflow_provider_slshudi.rows.convert import ColumnSpec
from airflow_provider_slshudi.spark.driver.unnamed_keys import BLOCK, BLOCKS, FREE, LONGEST, UnnamedKeys
from tests.needs import needs_native

LOOK = BLOCKS * BLOCK
Logs = Callable[..., pa.Table]


@pytest.fixture(params=["ptars", pytest.param("native", marks=needs_native)])
def logs(request: pytest.FixtureRequest) -> Logs:
    """Makes the logs of a pull, one log group of `contents`, with a column for `a`, by each decoder."""
    decode: Any = import_module(f"airflow_provider_slshudi.sls.{request.param}_decode").decode

    def make(*contents: Mapping[str, bytes] | list[tuple[str, bytes]], tags: dict[str, str] | None = None) -> pa.Table:
        listed = LogGroupListRaw()
        group = listed.LogGroups.add(Topic="t", Source="s")
        for name, value in (tags or {}).items():
            group.LogTags.add(Key=name, Value=value)
        for pairs in contents:
            log = group.Logs.add(Time=1)
            for name, content in pairs.items() if isinstance(pairs, Mapping) else pairs:
                log.Contents.add(Key=name, Value=content)
        table: pa.Table = decode(listed.SerializeToString(), 0, 0, ["a"])
        return table

    return make


def found(*pulls: pa.Table) -> Unnamed:
    """What a task finds in its pulls."""
    keys = UnnamedKeys(with_values=True)
    for pull in pulls:
        keys.add(pull)
    return keys.found()


def test_keys_without_a_column_are_counted_with_values_tags_among_them(logs: Logs) -> None:
    pull = logs(
        {"a": b"1", "city": b"Ulm"},
        {"a": b"2"},
        {"city": b"Bonn", "zip": b"53111"},
        {"city": b"Ulm"},
        tags={"host": "h1"},
    )
    assert found(pull) == Unnamed(
        4,
        {"__tag__:host": 4, "city": 3, "zip": 1},
        {"__tag__:host": ["h1"], "city": ["Ulm", "Bonn"], "zip": ["53111"]},
    )


def test_a_key_that_a_log_has_twice_counts_once(logs: Logs) -> None:
    pull = logs([("city", b"Ulm"), ("a", b"1"), ("city", b"Bonn")])
    assert found(pull) == Unnamed(1, {"city": 1}, {"city": ["Bonn"]})


def test_nothing_is_found_where_columns_name_all(logs: Logs) -> None:
    assert found(logs({"a": b"1"}, {"a": b"2"})) == Unnamed(2)
    assert found(logs()) == Unnamed()


def test_of_a_large_pull_blocks_are_looked_at_the_last_log_among_them(logs: Logs) -> None:
    many = [{"a": b"1", "always": b"x"} for _ in range(LOOK * 10)]
    pull = logs(*many[:-1], {"late": b"y"})
    assert found(pull) == Unnamed(LOOK, {"always": LOOK - 1, "late": 1}, {"always": ["x"], "late": ["y"]})


def test_a_key_of_every_second_half_of_a_pull_is_told_with_its_share(logs: Logs) -> None:
    pull = logs(*({"a": b"1"} for _ in range(LOOK * 5)), *({"b": b"%d" % n} for n in range(LOOK * 5)))
    told = found(pull)
    assert told.logs == {"b": LOOK // 2}
    assert len(set(told.examples["b"])) == EXAMPLES


def test_after_the_first_few_thousand_one_log_in_two_hundred_is_looked_at(logs: Logs) -> None:
    keys, pull = UnnamedKeys(with_values=True), logs(*({"b": b"1"} for _ in range(LOOK * 10)))
    looked = []
    for _ in range(200):
        keys.add(pull)
        looked.append(keys.found().looked // LOOK)
    first = FREE // LOOK
    assert looked[:first] == list(range(1, first + 1))
    # Each look is paid for by two hundred times as many logs that came: twenty pulls.
    assert looked[first:159] == [first] * (159 - first)
    assert (looked[159], looked[178], looked[179], looked[199]) == (9, 9, 10, 11)


STRUCT = ColumnSpec("a", "struct<roleArn:string,in:array<struct<x:bigint>>>", "a")


def of_structs(pull: pa.Table, spec: ColumnSpec = STRUCT) -> Unnamed:
    keys = UnnamedKeys([spec, ColumnSpec("b", "string", "b")], with_values=True)
    keys.add(pull)
    return keys.found()


def test_fields_of_json_that_a_struct_does_not_name_are_told_like_keys(logs: Logs) -> None:
    pull = logs(
        {"a": b'{"roleArn": "r"}'},
        {"a": b'{"bucketName": "b", "roleArn": "r", "api_key": "hunter2", "owner": {"password": "hunter2"}}'},
        {"a": b'{"bucketName": 7, "in": [{"x": 1, "y z": [true]}, {"y z": 2}]}'},
        {"a": b"no json"},
        {},
    )
    assert of_structs(pull) == Unnamed(
        5,
        {"a $.bucketName": 2, "a $.api_key": 1, "a $.owner": 1, "a $.in[*]['y z']": 1},
        {
            "a $.bucketName": ["b", "7"],
            "a $.api_key": ["***"],
            "a $.owner": ["{password}"],
            "a $.in[*]['y z']": ["[true]"],
        },
    )


def test_fields_below_a_columns_path_are_told_by_their_whole_path(logs: Logs) -> None:
    pull = logs({"a": b'{"u": {"id": 1, "name": "n"}, "v": 1}'})
    found = of_structs(pull, ColumnSpec("u", "struct<id:bigint>", "a", path="$.u"))
    assert found.logs == {"a $.u.name": 1}


def test_what_a_column_names_holds_whole_texts_and_a_rest_column_keeps_other_keys() -> None:
    columns = [
        Column(name="a", type="struct<x:map<string,struct<y:bigint>>>"),
        Column(name="b"),
        Column(name="part", key="a", path="$.part"),
    ]
    for rest in (None, "rest"):
        named = NamedKeys(columns, rest)
        assert [key in named for key in ("a $.x", "a $.x[*].y", "a $.part", "b $.any", "a")] == [True] * 5
        assert [key in named for key in ("a $.z", "a $.x[*].z")] == [False] * 2
        assert ("c" in named, "c $.z" in named) == (False, False)
        assert [named.kept_in(key) for key in ("c", "c $.z", "a $.z")] == [rest, rest, None]


def test_many_tiny_pulls_cost_a_bounded_number_of_looks(logs: Logs) -> None:
    assert found(*[logs({"b": b"1"})] * 1_000) == Unnamed(FREE // BLOCK, {"b": FREE // BLOCK}, {"b": ["1"]})


def test_random_keys_fill_neither_a_task_nor_what_it_tells(logs: Logs) -> None:
    keys = UnnamedKeys(with_values=True)
    for pull in range(12):
        keys.add(logs(*({f"r{pull}-{number}": b"v", "real": b"w"} for number in range(300))))
    told = keys.found()
    assert len(told.logs) == len(told.examples) == MOST
    assert told.logs["real"] == 12 * 300 and told.examples["real"] == ["w"]
    assert len(keys._logs) <= 6 * MOST


def test_values_that_look_like_secrets_are_not_told(logs: Logs) -> None:
    secret = ("password", "Access-Token", "x_api_key", "Cookie", "db.passwd", "session_id")
    told = found(logs({**dict.fromkeys(secret, b"hunter2"), "keyboard": b"qwertz"}))
    assert told.examples == {**{name: ["***"] for name in secret}, "keyboard": ["qwertz"]}


def test_keys_and_values_of_any_bytes_and_length_are_text(logs: Logs) -> None:
    told = found(logs({"k" * 1_000: b"v" * 1_000, "b": b"\xff\x00", "": b""}))
    assert told.logs == {"k" * LONGEST: 1, "b": 1, "": 1}
    assert told.examples == {"k" * LONGEST: ["v" * 100], "b": ["\\xff\x00"], "": [""]}


def test_logs_that_cannot_be_looked_at_harm_nobody(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert found(pa.table({"a": [b"1"]})) == Unnamed()
    assert "not counted in 1 logs" in caplog.text


def test_parts_add_up_the_most_frequent_first() -> None:
    one = Unnamed(10, {"b": 1, "a": 2}, {"b": ["x"], "a": ["1", "2"]})
    other = Unnamed(5, {"c": 4, "a": 3}, {"c": ["z"], "a": ["2", "3", "4"]})
    total = Unnamed.total([one, other, Unnamed(7)])
    assert total == Unnamed(22, {"a": 5, "c": 4, "b": 1}, {"a": ["1", "2", "3"], "c": ["z"], "b": ["x"]})
    assert list(total.logs) == ["a", "c", "b"]
    many = Unnamed(1, {str(number): number for number in range(MOST + 50)})
    assert min(Unnamed.total([many]).logs.values()) == 50


def test_looking_costs_little_of_what_decoding_costs(logs: Logs) -> None:
    """`benchmarks/decode.py` has the figure; this only notices a loop over logs."""
    pull = logs(*({"b": b"%d" % n, "c": b"x"} for n in range(20_000)))
    started = time.process_time()
    assert found(*[pull] * 50).looked == 10 * LOOK
    assert time.process_time() - started < 1


def test_no_value_is_told_where_the_file_does_not_say_so(logs: Logs) -> None:
    keys = UnnamedKeys(with_values=False)
    keys.add(logs({"b": b"a value"}))
    assert (keys.found().logs, keys.found().examples) == ({"b": 1}, {})
