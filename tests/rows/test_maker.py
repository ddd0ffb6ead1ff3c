"""Decoded logs become rows: columns, row keys that prove their origin, partition values."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_slshudi.exceptions import ValueMisfit
from airflow_provider_slshudi.rows.maker import RowMaker, RowSpec
from tests.pipelines import ad_events
from tests.rows.logs import logs


def test_a_row_key_says_shard_cursor_and_index() -> None:
    made = RowMaker(RowSpec.of(ad_events(Path("/t")))).rows(logs(ts=[b"0", b"0", b"0"]), shard=7)
    assert made.keys.to_pylist() == ["7-100-0", "7-100-1", "7-101-0"]


@pytest.mark.parametrize(
    ("every", "timezone", "expected"),
    [
        ("day", "UTC", ["2026-01-01", "2025-12-31", None]),
        ("day", "Asia/Shanghai", ["2026-01-02", "2026-01-01", None]),
        ("hour", "Asia/Kolkata", ["2026-01-02-01", "2026-01-01-04", None]),
        ("month", "UTC", ["2026-01", "2025-12", None]),
    ],
)
def test_event_time_partitions_follow_the_zone(every: str, timezone: str, expected: list[str | None]) -> None:
    partition = {"by": "event_time", "column": "event_time", "every": every, "timezone": timezone}
    pipeline = ad_events(Path("/t"), table={"path": "file:///t", "name": "t", "partition": partition})
    # 2026-01-01T20:00Z, 2025-12-31T23:00Z, and a value that does not fit
    made = RowMaker(RowSpec.of(pipeline)).rows(logs(ts=[b"1767297600000", b"1767222000000", b"never"]), 0)
    assert made.partitions is not None
    assert made.partitions.to_pylist() == expected
    assert made.data["event_date"].to_pylist() == expected


def test_former_names_have_the_same_values_and_count_their_misfits_once() -> None:
    columns = [{"name": "cost", "type": "double", "key": "price", "renamed_from": ["price", "amount"]}]
    maker = RowMaker(RowSpec.of(ad_events(Path("/t"), columns=columns, table={"path": "file:///t", "name": "t"})))
    made = maker.rows(logs(ts=[b"0", b"0"], price=[b"1.5", b"cheap"]), 0)
    assert made.data.drop_columns(["rest"]).to_pydict() == {name: [1.5, None] for name in ("cost", "price", "amount")}
    assert maker.misfits == {"cost": 1}


def test_misfits_are_counted_per_column() -> None:
    maker = RowMaker(RowSpec.of(ad_events(Path("/t"))))
    maker.rows(logs(ts=[b"0", b"x"], price=[b"1.5", b"cheap"], clicks=[b"1", b"2"]), 0)
    maker.rows(logs(ts=[b"y"], price=[None]), 0)
    assert maker.misfits == {"event_time": 2, "price": 1}


def test_a_misfit_fails_where_the_pipeline_says_so() -> None:
    maker = RowMaker(RowSpec.of(ad_events(Path("/t"), misfits="fail")))
    maker.rows(logs(ts=[b"0"], price=[b"1.5"]), 0)
    with pytest.raises(ValueMisfit, match="column price: a value of 5 bytes of log 3-100-1 is no double"):
        maker.rows(logs(ts=[b"0", b"0"], price=[b"1", b"cheap"]), 3)


def test_texts_that_mean_null_are_no_misfits() -> None:
    columns = [
        {"name": "clicks", "type": "bigint", "null_texts": ["-", ""]},
        {"name": "event_id", "null_texts": ["-"], "required": True},
        {"name": "part", "type": "double", "key": "price", "path": "$.x", "null_texts": ["n/a"]},
    ]
    table = {"path": "file:///t", "name": "t"}
    maker = RowMaker(
        RowSpec.of(ad_events(Path("/t"), columns=columns, table=table, misfits="quarantine", rest_column=None))
    )
    made = maker.rows(
        logs(
            ts=[b"0"] * 4,
            clicks=[b"-", b"", b"7", b"--"],
            event_id=[b"a", b"", b"-", b"d"],
            price=[b'{"x": "n/a"}', b'{"x": 1.5}', b"{}", b"{}"],
        ),
        0,
    )
    assert made.data["clicks"].to_pylist() == [None, None]
    assert made.data["event_id"].to_pylist() == ["a", ""]
    assert made.data["part"].to_pylist() == [None, 1.5]
    assert made.unfit is not None
    assert list(zip(made.unfit.rows.tolist(), made.unfit.why["reason"].to_pylist(), strict=True)) == [
        (2, "missing"),
        (3, "conversion"),
    ]


def test_a_logs_own_time_may_fill_a_column() -> None:
    columns = [{"name": "received", "type": "timestamp", "format": "seconds", "key": "__time__"}]
    pipeline = ad_events(Path("/t"), columns=columns, table={"path": "file:///t", "name": "t"}, rest_column=None)
    made = RowMaker(RowSpec.of(pipeline)).rows(logs(ts=[b"0"]), 0)
    assert made.data["received"][0].as_py().timestamp() == 1_700_000_000
    assert made.partitions is None


def test_a_path_leads_into_a_key_that_several_columns_share() -> None:
    columns = [
        {"name": "user_id", "type": "bigint", "key": "event_id", "path": "$.user.id"},
        {"name": "tags", "type": "array<string>", "key": "event_id", "path": "$.tags"},
        {"name": "whole", "key": "event_id"},
    ]
    pipeline = ad_events(Path("/t"), columns=columns, table={"path": "file:///t", "name": "t"}, rest_column=None)
    maker = RowMaker(RowSpec.of(pipeline))
    texts = [b'{"user": {"id": 7}, "tags": ["a"]}', b"{}", b'{"user": {"id": "x"}}', b"no json", None]
    made = maker.rows(logs(ts=[b"0"] * 5, event_id=texts), 0)
    assert made.data["user_id"].to_pylist() == [7, None, None, None, None]
    assert made.data["tags"].to_pylist() == [["a"], None, None, None, None]
    assert made.data["whole"].to_pylist() == [text and text.decode() for text in texts]
    # What a path does not find is no misfit; a text that is no JSON is one of each column that looks into it.
    assert maker.misfits == {"user_id": 2, "tags": 1}


def test_a_misfit_behind_a_path_names_what_was_there() -> None:
    columns = [{"name": "user_id", "type": "bigint", "key": "event_id", "path": "$.id"}]
    pipeline = ad_events(
        Path("/t"), columns=columns, table={"path": "file:///t", "name": "t"}, rest_column=None, misfits="fail"
    )
    for text, told in ((b'{"id": "x"}', "a value of 1 bytes"), (b"{id", "a value of 3 bytes")):
        with pytest.raises(ValueMisfit, match=rf"column user_id: {told} of log 0-100-0 is no bigint"):
            RowMaker(RowSpec.of(pipeline)).rows(logs(ts=[b"0"], event_id=[text]), 0)


@pytest.mark.parametrize(("missing", "dropped"), [("drop", 1), ("fail", 0)])
def test_a_key_that_hudi_cannot_read_back_is_left_out_or_fails(missing: str, dropped: int) -> None:
    upsert = {"record_key": "event_id", "buckets": 4, "missing_key": missing}
    pipeline = ad_events(Path("/t"), table={"path": "file:///t", "name": "t", "upsert": upsert})
    maker, pulled = RowMaker(RowSpec.of(pipeline)), logs(ts=[b"0"] * 3, event_id=[b"a,b", b",::", b"a:b"])
    if not dropped:
        with pytest.raises(
            ValueMisfit, match=r"a value of 3 bytes of log 0-100-1 makes a record key .* `table.upsert.missing_key"
        ) as e:
            maker.rows(pulled, 0)
        assert (e.value.reason, e.value.column) == ("key", "event_id")
        return
    assert maker.rows(pulled, 0).data["event_id"].to_pylist() == ["a,b", "a:b"]
    assert (maker.dropped, maker.misfits) == (1, {"event_id": 1})


@pytest.mark.parametrize(("missing", "dropped"), [("drop", 1), ("fail", 0)])
def test_a_delete_of_an_int_that_is_0_does_not_fit_where_there_are_log_files(missing: str, dropped: int) -> None:
    upsert = {"record_key": "event_id", "buckets": 4, "missing_key": missing}
    upsert |= {"ordering_field": "at", "delete_marker": "gone"}
    table = {"path": "file:///t", "name": "t", "type": "merge_on_read", "upsert": upsert}
    pulled = logs(ts=[b"0", b"0", b"1"], event_id=[b"a", b"b", b"c"], clicks=[b"true", b"false", b"true"])
    for type_ in ("int", "bigint"):
        columns = [
            {"name": "event_id"},
            {"name": "at", "type": type_, "key": "ts"},
            {"name": "gone", "type": "boolean", "key": "clicks"},
        ]
        maker = RowMaker(RowSpec.of(ad_events(Path("/t"), table=table, columns=columns, rest_column=None)))
        if type_ == "int" and not dropped:
            with pytest.raises(
                ValueMisfit,
                match="a value of 1 bytes of log 0-100-0 is 0, and Hudi takes a delete with ordering value 0",
            ) as e:
                maker.rows(pulled, 0)
            assert (e.value.reason, e.value.column) == ("ordering", "at")
        else:
            kept = maker.rows(pulled, 0).data["event_id"].to_pylist()
            assert kept == (["b", "c"] if type_ == "int" else ["a", "b", "c"])
