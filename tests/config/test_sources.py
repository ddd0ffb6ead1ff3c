"""One logstore or several: which are refused, and how the shards of each are numbered and named."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from airflow_provider_slshudi.config.sources import Source, by_place, full_name, is_same_or_more, own_name

MAIN = {"connection": "sls_hangzhou", "project": "ads", "logstore": "events"}
ABROAD = {"connection": "sls_frankfurt", "project": "ads-eu", "logstore": "events"}


def source(*also: dict[str, Any], **fields: Any) -> Source:
    return Source.model_validate({**MAIN, "also": list(also), **fields})


def test_further_logstores_have_the_first_one_s_connection_unless_they_name_one() -> None:
    several = source({"project": "ads", "logstore": "clicks"}, ABROAD)
    assert [item.connection for item in several.logstores] == ["sls_hangzhou", "sls_hangzhou", "sls_frankfurt"]
    assert several.connections == ["sls_hangzhou", "sls_frankfurt"]
    assert several.places == (("ads", "events", 0), ("ads", "clicks", 0), ("ads-eu", "events", 1))
    assert Source.model_validate(several.model_dump(mode="json")) == several
    unnamed = Source.model_validate({"project": "a", "logstore": "b", "also": [{"project": "c", "logstore": "d"}]})
    assert unnamed.connections == ["sls_default"]


def test_another_connection_takes_the_place_of_the_first_one_s_wherever_it_stands() -> None:
    several = source({"project": "ads", "logstore": "clicks"}, ABROAD).by_connection("mine")
    assert [item.connection for item in several.logstores] == ["mine", "mine", "sls_frankfurt"]


def test_a_logstore_that_is_named_twice_is_refused() -> None:
    with pytest.raises(ValidationError, match="sls://ads/events by connection sls_hangzhou is named twice"):
        source(ABROAD, {"project": "ads", "logstore": "events"})
    # Projects of two regions may have the same name.
    assert len(source({**MAIN, "connection": "sls_frankfurt"}).logstores) == 2


@pytest.mark.parametrize("also", [[{"project": "ads"}], [{**ABROAD, "start": "end"}], "events", [7], [ABROAD] * 100])
def test_what_is_no_list_of_logstores_is_refused(also: Any) -> None:
    with pytest.raises(ValidationError):
        Source.model_validate({**MAIN, "also": also})


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        ([MAIN], True),
        ([MAIN, ABROAD], True),
        ([ABROAD], False),
        ([ABROAD, MAIN], False),
        ([{**MAIN, "logstore": "events2"}], False),
    ],
)
def test_a_source_may_get_further_logstores_at_its_end_alone(wanted: list[dict[str, str]], fits: bool) -> None:
    first, *also = wanted
    identity = Source.model_validate({**first, "also": also}).identity
    assert is_same_or_more(source().identity, identity) is fits
    assert is_same_or_more(source(ABROAD).identity, source().identity) is False


def test_a_shard_is_named_by_its_logstore_where_there_are_several() -> None:
    alone, several = source().identity, source(ABROAD).identity
    assert (own_name(alone, 3), full_name(alone, 3)) == ("", "3")
    assert (own_name(several, 3), own_name(several, 1_000_003)) == ("ads/events 3", "ads-eu/events 3")
    assert full_name(several, 1_000_003) == "1000003 (ads-eu/events 3)"
    assert full_name(several, 2_000_003) == "2000003"
    assert by_place([0, 1_000_003, 3, 1_000_000], int) == {0: [0, 3], 1: [1_000_003, 1_000_000]}
