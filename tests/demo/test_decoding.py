"""The demo says how fast this machine decodes, and what would make it faster."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_slshudi.cli.demo.figures import Decoding, Show, measure
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.local.pytest_plugin import local_sls
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.system.native import native
from tests.local.sdk import PROJECT, by_ip, make_logstore, put
from tests.pipelines import ad_events

__all__ = ["local_sls"]


def test_what_the_service_holds_is_decoded_for_a_second(local_sls: LocalSls, tmp_path: Path) -> None:
    client = by_ip(local_sls.connection())
    logstore = make_logstore(client, "decoded")
    put(client, logstore, [b"x" * 500] * 1000)
    found = measure(LogService(local_sls.connection(), PROJECT, logstore), ad_events(tmp_path))
    assert found.mb_s > 1
    assert found.by_native is (native is not None)


def test_only_a_machine_without_the_rust_package_is_told_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    Show().decoding(Decoding(948.4, by_native=True))
    assert "948 MB" in (shown := capsys.readouterr().out)
    assert "by slshudi-native" in shown
    assert "cargo" not in shown
    Show().decoding(Decoding(352, by_native=False))
    assert "by ptars" in (shown := capsys.readouterr().out)
    assert "`cargo`" in shown
