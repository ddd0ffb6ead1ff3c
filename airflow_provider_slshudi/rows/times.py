"""Texts to dates and times: whole columns at a time.

Without a format, and with `iso8601`, a text means what Spark's cast makes of it
(spark.apache.org/docs/3.5.9/sql-ref-ansi-compliance.html); with a pattern, what Spark's `to_timestamp` makes of it.
Fewer texts are taken than Spark takes; docs/pipeline.md lists them.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_slshudi.config.timepattern import TimePattern
from airflow_provider_slshudi.rows.casts import Cast, attempt, bytes_of, halve

UTC = "UTC"
_INSTANT, _LOCAL = pa.timestamp("us", tz=UTC), pa.timestamp("us")
_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"[0-9]{2}(:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?"
_ZONE = r"(Z|[+-]((0[0-9]|1[0-7])(:?[0-5][0-9])?|18(:?00)?))"
_COMMA = r"(:[0-9]{2}),([0-9])"
_COUNT = r"\A(?P<whole>[+-]?[0-9]+)(?:\.(?P<fraction>[0-9]*))?\z"
_UTC_NAMES = ("UTC", "GMT", "UT", "Z")
_WEEKDAYS = pa.array(["mon", "tue", "wed", "thu", "fri", "sat", "sun"])
_ISO = rf"\A{_DAY}([T ]{_CLOCK}{_ZONE}?)?\z"
_ENDS_IN_ZONE = rf"[T ][0-9:.]+{_ZONE}\z"
_LONGEST_BARE = len("2026-01-02T03:04:05.123456")
_DATE = r"\A\+?(?P<year>[0-9]{4})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})(?:[ T](?s:.*))?)?)?\z"
_MONTHS = pa.array(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"])
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_STEPS = (86_400_000_000, 900_000_000, 1)
"""Days, quarters of an hour, microseconds: within a day or a quarter a zone's offset mostly stays."""
_FIRST, _LAST = ((end - _EPOCH) // _MICROSECOND for end in (datetime(1, 1, 3), datetime(9999, 12, 29)))


_YEARS = {
    pa.date32(): pa.array([date.min, date.max]),
    _INSTANT: pa.array([datetime.min, datetime.max], _LOCAL).cast(_INSTANT),
}


def within_years(values: pa.Array) -> pa.Array:
    """`values`, NULL where a day or an instant is not in the years 1 to 9999, by UTC.

    Readers fail at other years: Python has none such, and Spark overflows when it hands the least of them to Java.
    """
    first, last = _YEARS[values.type]
    ends = pc.min_max(values)
    if not pc.or_(pc.less(ends["min"], first), pc.greater(ends["max"], last)).as_py():
        return values
    inside = pc.and_(pc.greater_equal(values, first), pc.less_equal(values, last))
    return pc.if_else(inside, values, pa.scalar(None, values.type))


def iso8601(text: pa.Array, zone: str) -> pa.Array:
    """Instants of ISO 8601 texts; a time without offset is in `zone`. Cuts off digits below the microsecond.

    A comma before the digits of the second counts as a point, as in ISO 8601 itself.
    """
    if bool((bytes_of(text) == ord(",")).any()):
        text = pc.replace_substring_regex(text, _COMMA, r"\1.\2")
    if len(text) and (pc.max(pc.binary_length(text)).as_py() or 0) > _LONGEST_BARE:
        text = pc.replace_substring_regex(text, r"(\.[0-9]{6})[0-9]+", r"\1")
    zoned = pc.match_substring_regex(text, _ENDS_IN_ZONE)
    none: Any = pa.scalar(None, pa.string())
    with_zone = attempt(pc.if_else(zoned, text, none), lambda part: part.cast(_INSTANT), _ISO)
    bare = attempt(pc.if_else(zoned, none, text), lambda part: part.cast(_LOCAL), _ISO)
    return pc.coalesce(with_zone, instants(bare, zone))


def by_pattern(text: pa.Array, pattern: TimePattern, zone: str) -> pa.Array:
    """Instants of texts that are written by `pattern`; a time without offset is in `zone`."""
    written = _written(text, pattern)
    if pattern.has_zone:
        return halve(written, lambda part: part.cast(_INSTANT))
    local = halve(written, lambda part: part.cast(_LOCAL))
    if "zone_name" in pattern.parts:
        return _instants_by_name(local, pc.utf8_upper(pc.extract_regex(text, pattern.regex).field("zone_name")), zone)
    return instants(local, zone)


def _instants_by_name(local: pa.Array, names: pa.Array, zone: str) -> pa.Array:
    """Wall-clock times as instants by the names of their zones: UTC's, or one that `zone` has on that day.

    Elsewhere CST is a time of China, of Cuba, or of Chicago; NULL where `zone` does not say which.
    """
    valid_mask = pc.and_(pc.is_valid(local), pc.is_valid(names))
    counts = local.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    coded = names.fill_null("").dictionary_encode()
    labels, codes = coded.dictionary.to_pylist(), coded.indices.to_numpy()
    # Times of one day with one name have one offset.
    pairs, places = np.unique(np.stack([counts // _STEPS[0], codes]), axis=1, return_inverse=True)
    pair_offsets = [_offset_by_name(int(day), labels[code], ZoneInfo(zone)) for day, code in pairs.T]
    fits = np.array([offset is not None for offset in pair_offsets], np.bool_)[places.ravel()]
    offsets = np.array([offset or 0 for offset in pair_offsets], np.int64)[places.ravel()]
    mask = ~(fits & valid_mask.to_numpy(zero_copy_only=False))
    return pa.array(counts - offsets, mask=mask).cast(_INSTANT)


def _offset_by_name(day: int, name: str, zone: ZoneInfo) -> int | None:
    """How far the zone that `zone` calls so on a day is ahead of UTC, in microseconds; None if it calls none so."""
    if name in _UTC_NAMES:
        return 0
    for count in (day * _STEPS[0], (day + 1) * _STEPS[0] - 1):
        moment = (_EPOCH + min(max(count, _FIRST), _LAST) * _MICROSECOND).replace(tzinfo=zone)
        if moment.tzname() == name:
            return _offset(count, zone)
    return None


def counted(text: pa.Array, digits: int, whole_numbers: Cast) -> pa.Array:
    """Instants of counts since 1970 with digits behind a point; cuts off those below the microsecond.

    Args:
        text: the counts, without blanks around them.
        digits: how many digits of the unit are microseconds, as in `config.timepattern.COUNTS`.
        whole_numbers: makes 64-bit integers of texts, NULL where one is none.
    """
    groups = pc.extract_regex(text, _COUNT)
    whole, none = whole_numbers(groups.field("whole")), pa.scalar(None, pa.int64())
    if digits <= 0:
        return pc.divide(whole, 10**-digits).cast(_INSTANT)
    factor = 10**digits
    # Beyond that there is no year of a time.
    near = pc.less(pc.abs_checked(pc.if_else(pc.equal(whole, -(2**63)), none, whole)), 2**62 // factor)
    whole = pc.if_else(near, whole, none)
    fraction = pc.utf8_slice_codeunits(pc.utf8_rpad(groups.field("fraction"), digits, "0"), 0, digits).cast(pa.int64())
    fraction = pc.if_else(pc.starts_with(text, "-"), pc.negate(fraction), fraction)
    return pc.add(pc.multiply(whole, factor), fraction).cast(_INSTANT)


def dates(text: pa.Array) -> pa.Array:
    """Days; a text may lack month and day, or give them one digit; a time behind the day is ignored."""
    cast = _to_date
    try:
        return cast(text)
    except pa.ArrowInvalid:
        return halve(_joined(pc.extract_regex(text, _DATE), ("year", "month", "day"), None), cast)


def dates_by_pattern(text: pa.Array, pattern: TimePattern) -> pa.Array:
    """Days of texts that are written by `pattern`."""
    return halve(pc.utf8_slice_codeunits(_written(text, pattern), 0, 10), _to_date)


def _to_date(text: pa.Array) -> pa.Array:
    return text.cast(pa.date32())


def instants(local: pa.Array, zone: str) -> pa.Array:
    """Wall-clock times of `zone` as instants.

    A time that the zone skips moves later by the length of the gap; of a time that occurs twice the earlier counts, as
    in Java's ZonedDateTime.ofLocal. Arrow's own conversion knows neither rule nor, after 2037, daylight saving.
    """
    if zone == UTC or not len(local) or local.null_count == len(local):
        return local.cast(_INSTANT)
    counts = local.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    counts = counts - _offsets(counts, ZoneInfo(zone), _STEPS)
    return pa.array(counts, mask=pc.is_null(local).to_numpy(zero_copy_only=False)).cast(_INSTANT)


def _offsets(counts: Any, zone: ZoneInfo, steps: tuple[int, ...]) -> Any:
    """How far `zone` is ahead of UTC, in microseconds, at wall-clock times; asked per day, and finer where it moves."""
    step, *finer = steps
    which, places = np.unique(counts // step, return_inverse=True)
    first = np.array([_offset(int(value) * step, zone) for value in which], np.int64)
    if finer:
        last = np.array([_offset(int(value) * step + step - 1, zone) for value in which], np.int64)
        offsets, moves = first[places], (first != last)[places]
        if moves.any():
            offsets[moves] = _offsets(counts[moves], zone, tuple(finer))
        return offsets
    return first[places]


def _offset(count: int, zone: ZoneInfo) -> int:
    # Python has the years 1 to 9999; times beyond take the offset of the nearest of these.
    local = _EPOCH + min(max(count, _FIRST), _LAST) * _MICROSECOND
    offset = local.replace(tzinfo=zone).utcoffset()
    return 0 if offset is None else offset // _MICROSECOND


def _written(text: pa.Array, pattern: TimePattern) -> pa.Array:
    """Texts of a pattern, rewritten as Arrow reads times; NULL where they do not match."""
    groups = pc.extract_regex(text, pattern.regex)
    month = "month_name" if "month_name" in pattern.parts else "month"
    hour = "half_hour" if "half_hour" in pattern.parts else "hour"
    parts = ("year", month, "day", hour, "minute", "second", "fraction", "zone")
    return _joined(groups, parts, pattern)


def _joined(found: pa.StructArray, parts: tuple[str, ...], pattern: TimePattern | None) -> pa.Array:
    has = {found.type.field(number).name for number in range(found.type.num_fields)}
    read = partial(_part, found, has)
    joined: pa.Array = read(parts[0])
    for before, part in zip(("-", "-", " ", ":", ":", ".", ""), parts[1:], strict=False):
        joined = pc.binary_join_element_wise(joined, read(part), before)
    none = pa.scalar(None, pa.string())
    joined = pc.if_else(pc.is_valid(found), joined, none)
    return pc.if_else(_is_day_named(found, joined), joined, none) if "weekday" in has else joined


def _is_day_named(found: pa.StructArray, written: pa.Array) -> pa.Array:
    """Whether each time is on the weekday that its text names."""
    days = halve(pc.utf8_slice_codeunits(written, 0, 10), _to_date)
    named = pc.index_in(pc.utf8_slice_codeunits(pc.utf8_lower(found.field("weekday")), 0, 3), _WEEKDAYS)
    return pc.fill_null(pc.equal(pc.day_of_week(days).cast(pa.int32()), named), False)


def _part(found: pa.StructArray, has: set[str], name: str) -> Any:
    """One part of a time as text, with as many digits as in ISO 8601."""
    if name not in has:
        return {"month": "01", "day": "01", "fraction": "000000", "zone": ""}.get(name, "00")
    text = found.field(name)
    if name == "month_name":
        text = pc.add(pc.index_in(pc.utf8_slice_codeunits(pc.utf8_lower(text), 0, 3), _MONTHS), 1).cast(pa.string())
    elif name == "half_hour":
        hour = pc.if_else(pc.equal(text, ""), "0", text).cast(pa.int32())
        afternoon = pc.equal(pc.utf8_upper(found.field("half")), "PM")
        hour = pc.if_else(pc.equal(hour, 12), 0, hour)
        text = pc.add(hour, pc.if_else(afternoon, 12, 0)).cast(pa.string())
    elif name == "fraction":
        return pc.utf8_slice_codeunits(pc.utf8_rpad(text, 6, "0"), 0, 6)
    elif name == "zone":
        return pc.utf8_upper(text)
    else:
        text = pc.if_else(pc.equal(text, ""), "01", text)
    return pc.utf8_lpad(text, 4 if name == "year" else 2, "0")
