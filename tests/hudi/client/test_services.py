"""What cleaning keeps for consumers, as options of Hudi's."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

from airflow_provider_slshudi.hudi.client.services import _kept_longer
from tests.pipelines import ad_events


def test_a_clean_that_goes_by_hours_keeps_an_instant_that_a_consumer_needs(tmp_path: Path) -> None:
    pipeline = ad_events(tmp_path / "table", maintenance={"keep": {"hours": 24}})
    old = f"{datetime.now(timezone.utc) - timedelta(hours=100):%Y%m%d%H%M%S}000"
    kept = int(_kept_longer(pipeline, old)["hoodie.clean.hours.retained"])
    assert 100 < kept <= 102
    assert _kept_longer(pipeline, "") == {"hoodie.clean.hours.retained": "24"}
