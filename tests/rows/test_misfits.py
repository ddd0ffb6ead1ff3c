"""Which logs do not fit, why, and what becomes of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_slshudi.exceptions import ValueMisfit
from airflow_provider_slshudi.rows.maker import RowMaker, Rows, RowSpec
from tests.pipelines import ad_events
from tests.rows.logs import logs

PLANNED = 1_800_000_000
HOUR = 3600


def maker(planned: int = PLANNED, bounds: dict[str, str] | None = None, **changes: Any) -> RowMaker:
    partition = {"by": "event_time", "column": "event_time", "bounds": bounds}
    table = {"path": "file:///t", "name": "t", "partition": partition}
    return RowMaker(RowSpec.of(ad_events(Path("/t"), table=table, **changes), planned))


def millis(*hours: float) -> list[bytes]:
    """Event times so many hours from when the batch was planned."""
    return [b"%d" % ((PLANNED + hour * HOUR) * 1000) for hour in hours]


def aside(made: Rows) -> list[tuple[int, str, str, bytes | None]]:
    """Place, column, reason and value of each log for the quarantine."""
    if made.unfit is None:
        return []
    why = made.unfit.why
    names = (why[name].to_pylist() for name in ("column_name", "reason", "value"))
    return list(zip(made.unfit.rows.tolist(), *names, strict=True))


@pytest.mark.parametrize("rule", ["nullify", "quarantine", "fail"])
def test_a_time_of_a_partition_that_is_not_kept_stays_in_its_row_without_partition(rule: str) -> None:
    of = replace(maker(misfits=rule)._spec, kept=frozenset({"event_date=2027-01-15"}))
    made = RowMaker(of)
    rows = made.rows(logs(ts=[*millis(0, 24 * 365), b"never" if rule != "fail" else None]), 7)
    assert rows.partitions is not None and rows.data["event_date"] == pa.chunked_array([rows.partitions])
    assert rows.partitions.to_pylist() == ["2027-01-15", None, None][: len(rows.partitions)]
    assert rows.data["event_time"].cast(pa.int64()).to_pylist()[:2] == [
        PLANNED * 1_000_000,
        (PLANNED + 24 * 365 * HOUR) * 1_000_000,
    ]
    assert [reason for _, _, reason, _ in aside(rows)] == (["conversion"] if rule == "quarantine" else [])
    assert any("the batch has more than one commit takes" in text for text in made.examples)


def test_a_value_of_a_partition_that_is_not_kept_follows_the_rule() -> None:
    table = {"path": "file:///t", "name": "t", "partition": {"by": "field", "column": "event_id"}}
    for rule, expected in (("nullify", ["a,", None]), ("quarantine", ["a,"])):
        spec = RowSpec.of(ad_events(Path("/t"), table=table, misfits=rule))
        rows = RowMaker(replace(spec, kept=frozenset({"event_id=a,"}))).rows(
            logs(ts=[b"0"] * 2, event_id=[b"a,", b"b"]), 7
        )
        assert rows.partitions is not None and rows.partitions.to_pylist() == expected
        assert rows.data["event_id"].to_pylist() == expected
        assert aside(rows) == ([(1, "event_id", "spread", b"b")] if rule == "quarantine" else [])


def test_a_log_goes_aside_once_by_its_first_column_that_does_not_fit() -> None:
    made = maker(misfits="quarantine")
    rows = made.rows(
        logs(
            ts=[b"0", b"x", b"0", b"0"],
            event_id=[b"a", b"b", b"\xff", b"d"],
            price=[b"1", b"cheap", b"cheap", None],
            clicks=[b"1", b"2", b"3", b"many"],
        ),
        7,
    )
    assert aside(rows) == [
        (1, "event_time", "conversion", b"x"),
        (2, "event_id", "not_utf8", b"\xff"),
        (3, "clicks", "conversion", b"many"),
    ]
    assert rows.unfit is not None and rows.unfit.why["type_wanted"].to_pylist() == ["timestamp", "string", "bigint"]
    assert rows.keys.to_pylist() == ["7-100-0"] and rows.data["event_id"].to_pylist() == ["a"]
    assert rows.partitions is not None and rows.partitions.to_pylist() == ["1970-01-01"]
    assert (made.unfit, made.misfits) == (3, {"event_id": 1, "event_time": 1, "price": 2, "clicks": 1})
    assert made.examples[0] == "column event_id of log 7-101-0: a value of 1 bytes is no UTF-8"


def test_logs_that_all_go_aside_leave_no_row() -> None:
    rows = maker(misfits="quarantine").rows(logs(ts=[b"x", b"y"]), 0)
    assert rows.data.num_rows == len(rows.keys) == len(rows.partitions or ()) == 0 and len(aside(rows)) == 2


def test_a_value_of_the_rest_that_is_no_utf8_puts_its_log_aside() -> None:
    table = logs(ts=[b"0", b"0", b"0"])
    rest = pa.array(
        [[(b"k", b"v")], [(b"a", b"1"), (b"b", b"\xfe"), (b"c", b"\xff")], []], pa.map_(pa.binary(), pa.binary())
    )
    table = table.set_column(table.schema.get_field_index("__rest__"), "__rest__", rest)
    assert aside(maker(misfits="quarantine").rows(table, 0)) == [(1, "rest", "not_utf8", b"\xfe")]
    with pytest.raises(ValueMisfit, match="column rest: a value of 1 bytes of log 0-100-1 is no UTF-8"):
        maker(misfits="fail").rows(table, 0)


@pytest.mark.parametrize("rule", ["nullify", "fail", "quarantine"])
def test_missing_and_too_large_values_follow_the_rule(rule: str) -> None:
    columns = [
        {"name": "event_id", "required": True, "max_bytes": 3},
        {"name": "event_time", "type": "timestamp", "format": "millis", "key": "ts"},
        {"name": "tags", "type": "array<int>", "key": "price", "max_bytes": 4},
    ]
    made = maker(misfits=rule, columns=columns)
    given = logs(
        ts=[b"0", b"0", b"0", b"0"], event_id=[b"abc", None, b"abcd", b"a"], price=[b"[1]", None, b"[1]", b"[1,2]"]
    )
    if rule == "fail":
        with pytest.raises(ValueMisfit, match="column event_id: log 0-100-1 has no value") as refused:
            made.rows(given, 0)
        assert (refused.value.reason, refused.value.size) == ("missing", None)
        return
    rows = made.rows(given, 0)
    if rule == "nullify":
        assert rows.data["event_id"].to_pylist() == ["abc", None, None, "a"]
        assert rows.data["tags"].to_pylist() == [[1], None, [1], None]
    else:
        assert aside(rows) == [
            (1, "event_id", "missing", None),
            (2, "event_id", "too_large", b"abcd"),
            (3, "tags", "too_large", b"[1,2]"),
        ]
    assert (made.unfit, made.misfits) == (3, {"event_id": 2, "tags": 1})


@pytest.mark.parametrize("rule", ["nullify", "fail", "quarantine"])
def test_a_value_that_no_partitions_folder_can_hold_follows_the_rule(rule: str) -> None:
    table = {"path": "file:///t", "name": "t", "partition": {"by": "field", "column": "event_id"}}
    made = RowMaker(RowSpec.of(ad_events(Path("/t"), table=table, misfits=rule)))
    given = logs(ts=[b"0"] * 5, event_id=[b"a", b"x.marker", b"", None, b"y" * 300])
    if rule == "fail":
        with pytest.raises(ValueMisfit, match=r"a value of 8 bytes of log 0-100-1 cannot be the name of a"):
            made.rows(given, 0)
        return
    rows = made.rows(given, 0)
    assert rows.partitions is not None
    if rule == "nullify":
        assert rows.data["event_id"].to_pylist() == rows.partitions.to_pylist() == ["a", None, None, None, None]
    else:
        assert rows.data["event_id"].to_pylist() == rows.partitions.to_pylist() == ["a", None]
        assert [found[:3] for found in aside(rows)] == [(place, "event_id", "partition") for place in (1, 2, 4)]
    assert (made.unfit, made.misfits) == (3, {"event_id": 3})


@pytest.mark.parametrize("every", ["hour", "month"])
@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "America/New_York"])
def test_an_event_time_beyond_the_years_of_folders_does_not_fit_and_stops_nothing(zone: str, every: str) -> None:
    partition = {"by": "event_time", "column": "event_time", "every": every, "timezone": zone}
    table = {"path": "file:///t", "name": "t", "partition": partition}
    columns = [{"name": "event_time", "key": "ts", "type": "timestamp", "format": "seconds"}]
    spec = RowSpec.of(ad_events(Path("/t"), table=table, columns=columns, rest_column=None))
    # Milliseconds, where seconds are expected; and one that Arrow would name after a year of four digits again.
    for odd in (b"1700000000000", b"-99999999999", b"2131000000000"):
        for given in ([odd], [b"1700000000", odd]):
            maker = RowMaker(spec)
            rows = maker.rows(logs(ts=given), 0)
            assert rows.partitions is not None
            *fitting, unfit = rows.partitions.to_pylist()
            assert unfit is None and all(value.startswith("2023-11") for value in fitting)
            assert maker.misfits == {"event_time": 1}


@pytest.mark.parametrize(
    ("zone", "first", "last"),
    [
        ("UTC", b"0001-01-01T00:00:00Z", b"9999-12-31T23:59:59.999999Z"),
        ("Asia/Shanghai", b"0001-01-01T08:05:43+08:05", b"9999-12-31T15:59:59Z"),
        ("America/New_York", b"0001-01-01T05:00:00Z", b"9999-12-31T18:59:59-05:00"),
    ],
)
def test_the_first_and_the_last_year_have_folders_in_every_zone(zone: str, first: bytes, last: bytes) -> None:
    partition = {"by": "event_time", "column": "event_time", "timezone": zone}
    table = {"path": "file:///t", "name": "t", "partition": partition}
    columns = [{"name": "event_time", "key": "ts", "type": "timestamp", "format": "iso8601"}]
    spec = RowSpec.of(ad_events(Path("/t"), table=table, columns=columns, rest_column=None))
    for given in ([first], [last], [first, last]):
        maker = RowMaker(spec)
        partitions = maker.rows(logs(ts=given), 0).partitions
        assert partitions is not None and not maker.misfits
        assert {*partitions.to_pylist()} <= {"0001-01-01", "9999-12-31"}


def test_late_and_future_logs_are_told_by_when_the_batch_was_planned() -> None:
    times = millis(-25, -24, 0, 1, 1.5)
    made = maker(bounds={"late": "1d", "future": "1h", "rule": "quarantine"})
    rows = made.rows(logs(ts=[*times, b"never"]), 0)
    assert aside(rows) == [(0, "event_time", "late", times[0]), (4, "event_time", "future", times[4])]
    # What does not convert is another matter, by the pipeline's own rule.
    assert rows.data["event_time"].null_count == 1 and rows.data.num_rows == 4
    assert made.misfits == {"event_time": 3}
    with pytest.raises(ValueMisfit, match="is too far in the future"):
        maker(bounds={"future": "1h", "rule": "fail"}).rows(logs(ts=times), 0)
    # Read again a day later, the same batch gives the same rows; another batch does not.
    assert maker(PLANNED, {"late": "1d"}, misfits="quarantine").rows(logs(ts=times), 0).data.num_rows == 4
    assert maker(PLANNED + 24 * HOUR, {"late": "1d"}, misfits="quarantine").rows(logs(ts=times), 0).data.num_rows == 3


def test_late_logs_that_are_nullified_go_to_the_partition_of_none() -> None:
    rows = maker(bounds={"late": "1d", "rule": "nullify"}).rows(logs(ts=millis(-48, 0)), 0)
    assert rows.partitions is not None and rows.partitions.to_pylist() == [None, "2027-01-15"]
    assert rows.data["event_time"].null_count == 1


SECRET = b"hunter2-of-the-user"


@pytest.mark.parametrize("rule", ["nullify", "fail", "quarantine"])
def test_a_value_that_does_not_fit_is_told_by_its_length_unless_the_file_says_otherwise(rule: str) -> None:
    time = {"name": "event_time", "type": "timestamp", "format": "millis", "key": "ts"}
    columns = [{"name": "password", "type": "bigint", "key": "price"}, time]
    given, text = logs(ts=[b"0"], price=[SECRET]), SECRET.decode()
    made = maker(misfits=rule, columns=columns)
    if rule == "fail":
        for showing in (made, maker(misfits=rule, columns=columns, keep_values="7d")):
            with pytest.raises(ValueMisfit, match="a value of 19 bytes") as refused:
                showing.rows(given, 0)
            assert text not in str(refused.value), "an error stands in the ledger for good"
        return
    made.rows(given, 0)
    assert made.examples == ["column password of log 0-100-0: a value of 19 bytes is no bigint"]
    showing = maker(misfits=rule, columns=columns, keep_values="7d")
    showing.rows(given, 0)
    assert text in showing.examples[0]
