"""Which of Hudi's options a pipeline may set: those that Hudi has, to the letter."""

from __future__ import annotations

import re
import struct
import zipfile

import pytest

from airflow_provider_slshudi.config.options import OTHER_INDEXES, TAKE_EFFECT, require_allowed
from airflow_provider_slshudi.spark import packages


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("hoodie.rollback.paralelism", "hoodie.rollback.parallelism"),
        ("hoodie.metadata.index.column.stats.enabled", "hoodie.metadata.index.column.stats.enable"),
        ("hoodie.metadata.compact.max.delta.commit", "hoodie.metadata.compact.max.delta.commits"),
        ("hoodie.clustering.plan.strategy.max.num.group", "hoodie.clustering.plan.strategy.max.num.groups"),
        ("hoodie.memory.merge.fractions", "hoodie.memory.merge.fraction"),
        ("hoodie.metrics.pushgateway.hosts", "hoodie.metrics.pushgateway.host"),
        ("hoodie.Rollback.Parallelism", "hoodie.rollback.parallelism"),
        ("HOODIE.ROLLBACK.PARALLELISM", "hoodie.rollback.parallelism"),
        ("metadata.enable", "hoodie.metadata.enable"),
        ("hoodie.metadata.index.blom.filter.enable", "hoodie.metadata.index.bloom.filter.enable"),
    ],
)
def test_an_option_with_a_letter_wrong_is_refused_with_the_name_that_was_meant(typed: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"option {typed} may not be set") as refused:
        require_allowed(typed, "false")
    assert str(refused.value).endswith(f"Did you mean {meant}?")


@pytest.mark.parametrize("option", ["hoodie.no.such.option", "hoodie.compaction.x", "hoodie.keep.max.commits"])
def test_where_no_name_is_near_none_is_offered(option: str) -> None:
    with pytest.raises(ValueError, match=r"Take it out$"):
        require_allowed(option, "1")


def test_every_option_that_is_taken_is_a_constant_of_hudis_own_configurations() -> None:
    bundle = next(path for path in packages.jars() if "hudi-spark" in path.name)
    with zipfile.ZipFile(bundle) as jar:
        classes = [jar.read(name) for name in jar.namelist() if re.match(r"org/apache/hudi/.*Config\.class$", name)]

    def is_there(option: str) -> bool:
        # A text among a class's constants: its kind, its length, itself.
        constant = struct.pack(">BH", 1, len(option)) + option.encode()
        return any(constant in content for content in classes)

    assert not [option for option in TAKE_EFFECT | OTHER_INDEXES if not is_there(option)]
    assert not is_there("hoodie.rollback.paralelism")
